//! Pictures fetched from a server of our own: what is asked, from where, and what is refused.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::LocalSet;

use super::*;
use crate::cause::Cause;
use crate::config::Roots;
use crate::limits::MIB;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nand so on";

/// A server that gives these answers, one a connection, and says what it was asked.
struct Host {
    port: u16,
    asked: Rc<RefCell<Vec<String>>>,
}

impl Host {
    async fn start(answers: Vec<Vec<u8>>) -> Host {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Rc::<RefCell<Vec<String>>>::default();
        let heard = Rc::clone(&asked);
        tokio::task::spawn_local(async move {
            for answer in answers {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                heard.borrow_mut().push(String::from_utf8(head).unwrap());
                let _gone = stream.write_all(&answer).await;
                let _gone = stream.shutdown().await;
            }
            std::future::pending::<()>().await;
        });
        Host { port, asked }
    }
}

fn answer(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn moved(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

/// Pictures may come from `pics.test`, which is on this box.
fn rules() -> Images {
    Images { fetch: true, private_hosts: vec!["pics.test".to_owned()], ..Images::default() }
}

/// Where each look-up leads, in order; the last answer stays.
type Found = Vec<(&'static str, &'static str)>;

/// Fetches `url`, with hosts found as `found` says. Gives the look-ups as well.
async fn fetch(rules: &Images, url: &str, found: Found) -> (Result<Picture, String>, Vec<String>) {
    let visits = Visits::new(&Roots::Bundled, Matcher::builder().build()).unwrap();
    let memory = Budget::new(64 * MIB, 32 * MIB);
    let asked = Rc::<RefCell<Vec<String>>>::default();
    let log = Rc::clone(&asked);
    let resolve = move |host: String, port: u16| -> Local<Result<Vec<SocketAddr>, Failure>> {
        let times = log.borrow().iter().filter(|known| **known == host).count();
        let answers: Vec<_> = found.iter().filter(|(name, _)| *name == host).collect();
        let address = answers.get(times).or(answers.last()).map(|(_, address)| *address);
        log.borrow_mut().push(host.clone());
        Box::pin(async move {
            let address = address.map(str::to_owned).or(host.parse::<IpAddr>().ok().map(|it| it.to_string()));
            match address {
                Some(text) => {
                    Ok(text.split(' ').map(|it| SocketAddr::new(it.parse().unwrap(), port)).collect())
                }
                None => Err(Failure::with(Cause::Unreachable, &host)),
            }
        })
    };
    let fetch = Fetch { rules, visits: &visits, resolve: &resolve, memory: &memory };
    let picture = fetch.picture(url).await;
    let held = picture.as_ref().map_or(0, |(blob, _)| blob.bytes.len());
    assert!(memory.in_use() >= held && (held > 0 || memory.in_use() == 0), "its memory is set aside");
    let asked = asked.borrow().clone();
    (picture, asked)
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let all = async { tokio::time::timeout(Duration::from_secs(20), test).await.expect("in time") };
    runtime.block_on(LocalSet::new().run_until(all));
}

const HERE: (&str, &str) = ("pics.test", "127.0.0.1");

#[test]
fn a_picture_is_fetched_without_a_word_about_who_asks() {
    run(async {
        let host = Host::start(vec![answer("image/png", PNG)]).await;
        let url = format!("http://pics.test:{}/a/b.png?s=1", host.port);
        let (picture, asked) = fetch(&rules(), &url, vec![HERE]).await;
        let (blob, _) = picture.unwrap();
        assert_eq!((blob.media_type.as_str(), &blob.bytes[..]), ("image/png", PNG));
        assert_eq!(asked, ["pics.test"]);
        let head = host.asked.borrow()[0].to_ascii_lowercase();
        assert!(head.starts_with("get /a/b.png?s=1 http/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("host: pics.test:{}\r\n", host.port)), "{head}");
        assert!(head.contains("user-agent: edgeward/"), "{head}");
        for secret in ["authorization", "cookie", "x-api-key", "referer"] {
            assert!(!head.contains(secret), "{head}");
        }
    });
}

#[test]
fn a_name_is_looked_up_once_and_what_was_looked_at_is_asked() {
    run(async {
        let host = Host::start(vec![answer("image/jpeg", b"\xff\xd8\xff\xe0")]).await;
        let url = format!("http://pics.test:{}/", host.port);
        // Whoever looked again would be led to the metadata.
        let (picture, asked) = fetch(&rules(), &url, vec![HERE, ("pics.test", "169.254.169.254")]).await;
        assert_eq!(picture.unwrap().0.media_type, "image/jpeg");
        assert_eq!(asked.len(), 1);
    });
}

#[test]
fn no_address_but_a_public_one_is_asked() {
    run(async {
        let host = Host::start(vec![answer("image/png", PNG)]).await;
        let port = host.port;
        for (url, found, why) in [
            (format!("http://127.0.0.1:{port}/"), vec![], "at 127.0.0.1, on this network"),
            (format!("http://[::1]:{port}/"), vec![], "at ::1, on this network"),
            (format!("http://[::ffff:127.0.0.1]:{port}/"), vec![], "on this network"),
            (format!("http://evil.test:{port}/"), vec![("evil.test", "127.0.0.1")], "`images.private_hosts`"),
            // One good address does not make up for a bad one, wherever it stands.
            (
                format!("http://evil.test:{port}/"),
                vec![("evil.test", "1.1.1.1 127.0.0.1")],
                "on this network",
            ),
            (format!("http://evil.test:{port}/"), vec![("evil.test", "10.0.0.1 1.1.1.1")], "on this network"),
            // For no one, whatever the configuration says.
            ("http://pics.test/".to_owned(), vec![("pics.test", "169.254.169.254")], "nothing is fetched"),
            ("http://pics.test/".to_owned(), vec![("pics.test", "fe80::1")], "nothing is fetched"),
            ("http://gone.test/".to_owned(), vec![], "gone.test"),
            (format!("http://u:p@pics.test:{port}/"), vec![HERE], "a user or a password"),
            ("ftp://pics.test/".to_owned(), vec![HERE], "no http or https"),
            ("file:///etc/passwd".to_owned(), vec![], "its URL"),
            (format!("http://pics.test/{}", "a".repeat(9000)), vec![HERE], "longer than"),
        ] {
            let (picture, _) = fetch(&rules(), &url, found).await;
            let said = picture.map(|_| ()).expect_err(&url);
            assert!(said.contains(why), "{url}: {said}");
        }
        assert!(host.asked.borrow().is_empty(), "nobody was asked");
        let rules = Images { hosts: vec!["good.test".to_owned()], ..rules() };
        let (picture, asked) = fetch(&rules, "http://other.test/", vec![("other.test", "1.1.1.1")]).await;
        assert!(picture.map(|_| ()).unwrap_err().contains("`images.hosts`"));
        assert!(asked.is_empty(), "not even looked up");
    });
}

#[test]
fn a_redirect_is_looked_at_as_the_first_url_was() {
    run(async {
        let good = answer("image/png", PNG);
        let host = Host::start(vec![moved("/there"), moved("further?x=1"), good]).await;
        let url = format!("http://pics.test:{}/a/b", host.port);
        let (picture, asked) = fetch(&rules(), &url, vec![HERE]).await;
        assert_eq!(&picture.unwrap().0.bytes[..], PNG);
        assert_eq!(asked.len(), 3, "each is looked up");
        assert!(host.asked.borrow()[1].starts_with("GET /there "));
        assert!(host.asked.borrow()[2].starts_with("GET /further?x=1 "));

        let trap = Host::start(vec![answer("image/png", PNG)]).await;
        for (to, why) in [
            (format!("http://127.0.0.1:{}/", trap.port), "on this network"),
            (format!("http://inner.test:{}/", trap.port), "on this network"),
            (format!("//inner.test:{}/", trap.port), "on this network"),
            ("http://169.254.169.254/latest".to_owned(), "nothing is fetched"),
            ("gopher://pics.test/".to_owned(), "no http or https"),
        ] {
            let host = Host::start(vec![moved(&to)]).await;
            let url = format!("http://pics.test:{}/", host.port);
            let (picture, _) = fetch(&rules(), &url, vec![HERE, ("inner.test", "127.0.0.1")]).await;
            let said = picture.map(|_| ()).expect_err(&to);
            assert!(said.contains(why), "{to}: {said}");
        }
        // The same name again, and this time it leads elsewhere.
        let host = Host::start(vec![moved("/again")]).await;
        let url = format!("http://pics.test:{}/", host.port);
        let (picture, _) = fetch(&rules(), &url, vec![HERE, ("pics.test", "169.254.169.254")]).await;
        assert!(picture.map(|_| ()).unwrap_err().contains("nothing is fetched"));
        assert!(trap.asked.borrow().is_empty(), "nobody within was asked");

        let host = Host::start(vec![moved("/r"); 5]).await;
        let (picture, _) = fetch(&rules(), &format!("http://pics.test:{}/", host.port), vec![HERE]).await;
        assert!(picture.map(|_| ()).unwrap_err().contains("more than 3 redirects"));
        assert_eq!(host.asked.borrow().len(), 4);
    });
}

#[test]
fn what_is_no_picture_or_too_large_is_refused() {
    run(async {
        let rules = Images { max_bytes: 1000, ..rules() };
        let large = [PNG, &[0; 1000]].concat();
        let endless = [&b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n"[..], &large, &large].concat();
        let short = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 50\r\n\r\nabc".to_vec();
        for (said, why) in [
            (answer("text/html", b"<html>"), "no picture"),
            (answer("image/svg+xml", b"<svg>"), "no PNG"),
            (answer("image/png", b"<html>"), "no PNG"),
            (answer("image/png", b""), "no PNG"),
            (answer("image/png", &large), "larger than"),
            (endless, "larger than"),
            (short, ""),
            (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(), "answered 404"),
            (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n".to_vec(), "redirects nowhere"),
            (b"hello\r\n\r\n".to_vec(), ""),
        ] {
            let host = Host::start(vec![said]).await;
            let url = format!("http://pics.test:{}/", host.port);
            let (picture, _) = fetch(&rules, &url, vec![HERE]).await;
            let said = picture.map(|_| ()).expect_err(why);
            assert!(said.contains(why), "{why}: {said}");
        }
    });
}
