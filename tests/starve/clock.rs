//! The wall clock is wrong, is set, and jumps: certificates wait for it, deadlines do not know it.

use std::sync::Arc;
use std::time::Duration;

use edgeward::sim::model::healthy;
use edgeward::sim::script::parse;
use edgeward::sim::server::SimServer;
use edgeward::time::now;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

use crate::LIMIT;
use crate::program::{CHAT, Folder, Program, SOON, Wire, ask, chat, request, run, target};
use crate::wall::{LONG_AGO, WallClock};

const YEAR: i64 = 365 * 24 * 3600;

/// A cloud: `server` behind TLS, with a certificate that is valid since 2020. Its `[[target]]`.
async fn cloud(server: &SimServer, folder: &Folder, spare: bool) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    folder.write("ca.pem", &issuer.pem());
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2999, 1, 1));
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let (acceptor, behind) = (TlsAcceptor::from(Arc::new(config)), server.addr());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn_local(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            spawn_local(async move {
                // A handshake that the client breaks off.
                let Ok(mut tls) = acceptor.accept(socket).await else { return };
                let mut plain = TcpStream::connect(behind).await.unwrap();
                let _closed = tokio::io::copy_bidirectional(&mut tls, &mut plain).await;
            });
        }
    });
    format!(
        "\n[[target]]\nname = \"cloud\"\nkind = \"openai\"\nurl = \"https://localhost:{port}\"\nplace = \"cloud\"\n\
         group = \"clouds\"\nca_file = \"ca.pem\"\nmodels = {{ \"*\" = \"m\" }}\nspare = {spare}\n"
    )
}

#[test]
fn a_target_waits_for_the_time_and_is_tried_as_soon_as_it_is_set() {
    run(LIMIT, waits(true));
}

#[test]
fn so_does_one_of_which_no_spare_is_kept() {
    run(LIMIT, waits(false));
}

/// A cloud before the box, by a wrong clock that is set then.
async fn waits(spare: bool) {
    let (far, near) =
        (SimServer::start(healthy("far")).await.unwrap(), SimServer::start(healthy("near")).await.unwrap());
    let folder = Folder::new();
    let clock = WallClock::new(&folder);
    clock.set(LONG_AGO);
    let config = format!(
        "{}{}\n[router]\ngroups = [\"clouds\", \"box\"]\n",
        cloud(&far, &folder, spare).await,
        target("box", "openai", &near, "")
    );
    let program = Program::start_in(folder, &config, &clock.env()).await;
    assert!(program.log().contains("1980-01-01T"), "the clock is that of the test: {}", program.log());
    program.logged(&["WARN", "clock_wrong", "clock=3155"]).await;
    // A spare finds it out before any request does.
    if !spare {
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("cloud:clock,box:committed"));
    }
    program.logged(&["WARN", "target_waiting", "target=cloud", "cause=clock"]).await;
    let status = program.status().await;
    assert_eq!(status["clock_wrong"], true);
    assert_eq!(status["targets"][0]["candidate"], true);
    assert!(status["targets"][0]["reason"].as_str().unwrap().contains("clock to be set"), "{status}");

    let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
    assert_eq!(answer.header("x-edgeward-attempts"), Some("box:committed"), "the cloud comes last");
    near.set(parse("REFUSE").unwrap());
    let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert!(answer.header("x-edgeward-attempts").unwrap().ends_with("cloud:clock"));
    assert!(answer.text().contains("waiting for this box's clock to be set"), "{}", answer.text());
    let status = program.status().await;
    assert_eq!(status["targets"][0]["failed"], 0, "waiting is no failure: {status}");
    assert_eq!(program.log().matches("target_waiting").count(), 1, "{}", program.log());

    let set = now();
    clock.offset(0);
    program.logged(&["INFO", "clock_set", "targets=1"]).await;
    let tried = async {
        while program.status().await["targets"][0]["idle_connections"] != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, tried).await.expect("tried, unasked");
    assert!(now() - set < Duration::from_secs(4), "{:?}", now() - set);
    let status = program.status().await;
    assert_eq!(status["clock_wrong"], false);
    assert!(!status["targets"][0]["reason"].as_str().unwrap().contains("clock"), "{status}");
    let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
    assert_eq!(answer.header("x-edgeward-attempts"), Some("cloud:committed"), "and the first again");
}

#[test]
fn where_everyone_waits_for_the_time_clients_are_asked_to_come_back() {
    run(LIMIT, async {
        let far = SimServer::start(healthy("far")).await.unwrap();
        let folder = Folder::new();
        let clock = WallClock::new(&folder);
        clock.set(LONG_AGO);
        let config = cloud(&far, &folder, true).await;
        let program = Program::start_in(folder, &config, &clock.env()).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.header("retry-after").is_some());
        assert!(answer.text().contains("waiting_for_time"), "{}", answer.text());
    });
}

#[test]
fn jumps_of_the_clock_break_no_deadline_and_make_none_late() {
    run(LIMIT, async {
        let model = healthy("a").paced(12, Duration::ZERO, Duration::from_millis(60));
        let server = SimServer::start(model.clone()).await.unwrap();
        let folder = Folder::new();
        let clock = WallClock::new(&folder);
        let more = "deadlines = { first_token = \"600ms\", between_tokens = \"600ms\" }";
        let config = target("a", "openai", &server, more) + "[breaker]\nenabled = false\n";
        let program = Program::start_in(folder, &config, &clock.env()).await;
        // A running stream: each jump is longer than any deadline.
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", CHAT, &[], &chat(true))).await;
        wire.until("[a]").await;
        for (word, years) in [(" gate", 10), (" stream", -45), (" first", 0)] {
            clock.offset(years * YEAR);
            wire.until(word).await;
        }
        let answer = wire.answer().await;
        assert!(answer.clean && answer.text().contains("[DONE]"), "{}", answer.text());
        // Silent ones: their deadlines come when they should, before the first token and after it.
        let token =
            "D {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n";
        for (script, cause) in [
            ("HANG 60000".to_owned(), "timeout_first_token"),
            (format!("SSE\n{token}HANG 60000"), "timeout_between_tokens"),
        ] {
            server.set(parse(&script).unwrap());
            for years in [-45, 20] {
                let asked = server.counts().requests;
                let begun = now();
                let mut wire = Wire::connect(program.addr).await;
                wire.write(request("POST", CHAT, &[], &chat(true))).await;
                server.requested(asked + 1).await;
                clock.offset(years * YEAR);
                let _broken = wire.answer().await;
                let took = now() - begun;
                assert!(took > Duration::from_millis(590) && took < SOON / 2, "{cause} {years}: {took:?}");
                program.logged(&["request_done", cause]).await;
            }
        }
    });
}
