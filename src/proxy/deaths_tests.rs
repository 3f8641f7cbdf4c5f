//! What the kernel's words and a server's end make of attempts and of targets.

use std::path::Path;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::config;
use crate::config::ProcessHint;
use crate::dialect::Dialect;
use crate::dialect::request::Call;
use crate::health::Standing;
use crate::proxy::upstream::ProxyRules;
use crate::route::{self, Ask};
use crate::watch::process::NotFound;

const SECOND: Duration = Duration::from_secs(1);

/// An Ollama on `port` of this box, and a shelf.
fn gateway(port: u16) -> Rc<Gateway> {
    let text = format!(
        "[[target]]\nname = \"box\"\nkind = \"ollama\"\nurl = \"http://127.0.0.1:{port}\"\n\
         [[target]]\nname = \"shelf\"\nkind = \"vllm\"\nurl = \"http://10.0.0.1:1\"\n"
    );
    let config = config::parse(&text, Path::new("t"), &|_| None).unwrap().config;
    Rc::new(Gateway::new(config, &ProxyRules::from_env(), None).unwrap())
}

fn told(bound: &Bound) -> Option<Cause> {
    match bound.fate().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(cause) => Some(cause),
        Poll::Pending => None,
    }
}

fn explained(gateway: &Gateway, cause: Cause, at: Instant) -> Cause {
    let mut failure = Failure::new(cause);
    explain(gateway, 0, &mut failure, at);
    failure.cause
}

fn server(gateway: &Gateway) -> Rc<Server> {
    Rc::clone(gateway.servers[0].as_ref().expect("it is this box's"))
}

#[test]
fn only_a_target_on_this_box_has_a_process_and_a_reload_keeps_it() {
    let gateway = gateway(1);
    assert!(gateway.servers[1].is_none());
    assert!(begins(&gateway, 1, "m", false, now()).is_none());
    let renewed = gateway.renewed(gateway.config.clone(), &ProxyRules::from_env()).unwrap();
    assert!(Rc::ptr_eq(&server(&gateway), &server(&renewed)));
    drop(gateway);
    let other = renewed.renewed(self::gateway(2).config.clone(), &ProxyRules::from_env()).unwrap();
    drop(renewed);
    assert_eq!(other.process.deaths.servers(&other.config).len(), 2);
    assert_eq!(other.process.deaths.servers.borrow().len(), 1, "who is gone is forgotten");
}

#[test]
fn those_who_wait_are_told_and_those_who_speak_are_not() {
    let (gateway, at) = (gateway(1), now());
    let begin = |model, reloads| begins(&gateway, 0, model, reloads, at).expect("it is watched");
    let (a, spoke, reloads, b) = (begin("a", false), begin("a", false), begin("a", true), begin("b", false));
    spoke.answered();
    let server = server(&gateway);
    assert_eq!(server.tell(Cause::Crashed, Some("a")), 1);
    assert_eq!([&a, &spoke, &reloads, &b].map(told), [Some(Cause::Crashed), None, None, None]);
    assert_eq!(server.tell(Cause::OomKill, None), 2);
    assert_eq!(
        [&a, &spoke, &reloads, &b].map(told),
        [Some(Cause::Crashed), None, Some(Cause::OomKill), Some(Cause::OomKill)]
    );
    drop((a, spoke, reloads, b));
    assert!(!server.is_busy());
}

#[test]
fn one_of_several_was_the_server_if_its_socket_went_with_it() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = gateway(socket.local_addr().unwrap().port());
    let server = server(&gateway);
    let local = crate::watch::sockets::listeners(server.address.ip, server.address.port).unwrap();
    server.state.borrow_mut().found = Some(Found {
        how: "a test",
        socket: Some(local[0].inode),
        main: None,
        others: vec![7, 8],
        group: None,
    });
    assert_eq!(unowned(&gateway.process), [local[0].inode]);
    assert!(!server.was_the_server(7), "it listens");
    drop(socket);
    assert!(server.was_the_server(7));
    owned(&gateway.process, local[0].inode, 8);
    assert_eq!(gateway.process.deaths.owner(local[0].inode), Some(8));
}

#[test]
fn a_failure_is_told_by_what_is_known_better() {
    let (gateway, at) = (gateway(1), now());
    assert_eq!(explained(&gateway, Cause::Refused, at), Cause::Refused);
    server(&gateway).died.set(Some((at, Cause::OomKill)));
    assert_eq!(explained(&gateway, Cause::Refused, at + SECOND), Cause::OomKill);
    assert_eq!(explained(&gateway, Cause::TimeoutFirstToken, at + SECOND), Cause::TimeoutFirstToken);
    let counts = |cause| explain(&gateway, 0, &mut Failure::new(cause), at + SECOND);
    assert_eq!([Cause::Reset, Cause::Refused].map(counts), [Cause::OomKill, Cause::Refused]);
    assert_eq!(
        explained(&gateway, Cause::Refused, at + limits::DEATH_EXPLAINS),
        Cause::Refused,
        "that is long ago"
    );
    let later = at + limits::DEATH_EVIDENCE;
    assert_eq!(explained(&gateway, Cause::CudaOom, later), Cause::CudaOom);
    noticed(&gateway.process, &Notice::NvMap(12), later);
    assert_eq!(explained(&gateway, Cause::CudaOom, later), Cause::LoadRefused, "there is memory");
    assert_eq!(explained(&gateway, Cause::CudaOom, later + limits::DEATH_EVIDENCE), Cause::CudaOom);
}

#[test]
fn what_tcp_ends_before_a_death_is_known_counts_and_is_called_by_it() {
    let (gateway, at) = (gateway(1), now());
    let server = server(&gateway);
    let failed = |cause, first| goes_on(&gateway, 0, &mut Failure::new(cause), first, at);
    failed(Cause::Reset, true);
    assert_eq!(server.take_early(at), 0, "nobody is known there");
    server.state.borrow_mut().found =
        Some(Found { how: "a test", socket: None, main: Some(71), others: Vec::new(), group: None });
    let all = [Cause::Reset, Cause::Closed, Cause::Refused, Cause::TimeoutFirstToken, Cause::Crashed];
    all.into_iter().for_each(|cause| {
        failed(cause, true);
    });
    failed(Cause::Refused, false);
    assert_eq!(server.take_early(at + SECOND), 3, "each request once, and what TCP ended alone");
    assert_eq!(server.take_early(at + SECOND), 0);
    failed(Cause::Closed, true);
    assert_eq!(server.take_early(at + limits::DEATH_EXPLAINS), 0, "that is long ago");
    (0..1000).for_each(|_| {
        failed(Cause::Closed, true);
    });
    assert_eq!(server.take_early(at), limits::DEATH_EARLY);

    let called = |cause, failed_at| called(&gateway, 0, cause, failed_at);
    assert_eq!(called(Cause::Closed, at), Cause::Closed);
    server.died.set(Some((at + SECOND, Cause::OomKill)));
    assert_eq!([Cause::Closed, Cause::Crashed].map(|cause| called(cause, at)), [Cause::OomKill; 2]);
    assert_eq!(called(Cause::TimeoutFirstToken, at), Cause::TimeoutFirstToken);
    assert_eq!(called(Cause::Closed, at + SECOND + limits::DEATH_EXPLAINS), Cause::Closed, "another time");
}

#[test]
fn a_death_has_the_cause_that_the_kernel_names() {
    let (gateway, at) = (gateway(1), now());
    let (process, server) = (&gateway.process, server(&gateway));
    let cause = |pid, at| evidence(process, &server, pid, at).0.cause();
    assert_eq!(cause(71, at), Cause::Crashed);
    noticed(process, &Notice::Xid { code: 31, pid: Some(72) }, at);
    assert_eq!(cause(71, at), Cause::Crashed, "another's");
    noticed(process, &Notice::Xid { code: 31, pid: Some(71) }, at);
    assert_eq!((cause(71, at), evidence(process, &server, 71, at).1), (Cause::Xid, Some(31)));
    let name = crate::memory::kernel::Name::try_from("ollama").unwrap();
    noticed(process, &Notice::Killed { pid: 71, name, group: false }, at);
    assert_eq!(cause(71, at), Cause::OomKill);
    assert_eq!(cause(71, at + limits::DEATH_EVIDENCE), Cause::Crashed, "that is long ago");
    for code in 0..100 {
        noticed(process, &Notice::Xid { code, pid: None }, at);
    }
    assert_eq!(process.deaths.notices.borrow().len(), limits::DEATH_NOTICES);
}

#[test]
fn a_failed_gpu_holds_this_box_s_targets_and_clients_are_told() {
    let gateway = gateway(1);
    let current = Current::new(Rc::clone(&gateway), None);
    let (process, at) = (&gateway.process, now());
    let latched = |gateway: &Gateway| {
        let call = Call::bare(Dialect::OpenaiChat, "m");
        let store = gateway.store.borrow();
        let plan =
            route::plan(&gateway.config, &store, &mut gateway.routing.borrow_mut(), &Ask::bare(&call), at);
        let message = match store.summary(0, "m", 1, at).standing {
            Standing::Out(why) => why.in_words(),
            _ => String::new(),
        };
        // Rather than nobody it is asked all the same: its model may be on another GPU.
        let well = plan.candidates.iter().filter(|candidate| !candidate.reluctant);
        let mut candidates: Vec<_> = well.map(|candidate| candidate.target).collect();
        candidates.sort_unstable();
        (candidates, message)
    };
    for warns in [94, 63, 31, 32, 43, 13, 45, 68, 109] {
        noticed(process, &Notice::Xid { code: warns, pid: None }, at);
    }
    act(&current, &gateway);
    assert_eq!(latched(&gateway).0, [0, 1]);
    noticed(process, &Notice::Xid { code: 79, pid: None }, at);
    act(&current, &gateway);
    let (candidates, message) = latched(&gateway);
    assert_eq!(candidates, [1]);
    assert!(message.contains("is on a GPU that has failed (Xid 79) and needs a reset"), "{message}");
    act(&current, &gateway);
    // The driver lost it, and has it again: somebody has reset it.
    for (answers, candidates) in [(true, vec![1]), (false, vec![1]), (true, vec![0, 1])] {
        gpu_answers(process, Some(answers));
        act(&current, &gateway);
        assert_eq!(latched(&gateway).0, candidates, "{answers}");
    }
    // A driver that answers all the time says nothing of a reset; one that was let go of for it does.
    noticed(process, &Notice::Xid { code: 48, pid: None }, at);
    for (answers, candidates) in
        [(Some(true), vec![1]), (None, vec![1]), (None, vec![1]), (Some(true), vec![0, 1])]
    {
        gpu_answers(process, answers);
        act(&current, &gateway);
        assert_eq!(latched(&gateway).0, candidates, "{answers:?}");
    }
    for answers in [None, Some(true)] {
        gpu_answers(process, answers);
        act(&current, &gateway);
        assert_eq!(process.deaths.gpu.get(), Gpu::default(), "nothing has failed");
    }
    // Whatever an operator says of it: it does not answer.
    gpu_answers(process, Some(false));
    act(&current, &gateway);
    let renewed = Rc::new(gateway.renewed(gateway.config.clone(), &ProxyRules::from_env()).unwrap());
    current.replace(Rc::clone(&renewed));
    assert_eq!(latched(&renewed).0, [0, 1]);
    act(&current, &renewed);
    assert_eq!(latched(&renewed).0, [1]);
}

#[test]
fn who_has_a_socket_that_shows_nothing_is_asked_too() {
    let gateway = gateway(1);
    server(&gateway).state.borrow_mut().why_not = Some(NotFound::Hidden(Some(7)));
    assert_eq!(unowned(&gateway.process), [7]);
    server(&gateway).state.borrow_mut().why_not = Some(NotFound::Nobody);
    assert_eq!(unowned(&gateway.process), [0_u64; 0]);
}

/// A process whose end is told only when its turn comes, whatever is found meanwhile.
#[tokio::test]
async fn an_end_is_told_although_the_server_is_not_found_any_more_or_another_one_is() {
    let path = std::env::temp_dir().join(format!("edgeward-deaths-{}", std::process::id()));
    let sleeper = || {
        let mut command = std::process::Command::new("sleep");
        // Where the test fails, they hold no pipe of who reads what it says.
        command.arg("60").stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    let (mut first, mut second) = (sleeper(), sleeper());
    let address =
        Address { ip: Ipv4Addr::LOCALHOST.into(), port: 1, hint: Some(ProcessHint::PidFile(path.clone())) };
    let server = Server::new(address, false, &Rc::default());
    let watch = |_: u32, held: Rc<Held>| task::start(async move { held.ended().await });
    let main = || server.state.borrow().found.as_ref().and_then(|found| found.main);
    tokio::task::LocalSet::new()
        .run_until(async {
            std::fs::write(&path, first.id().to_string()).unwrap();
            assert!(server.look(&|_| None, now(), &watch).is_some());
            std::fs::remove_file(&path).unwrap();
            assert!(server.look(&|_| None, now(), &watch).is_none());
            assert_eq!(main(), Some(first.id()), "it lives, though it is not to be found");
            first.kill().unwrap();
            // Its number is still its own until it is waited for.
            while server.has_ended().is_none() {
                tokio::task::yield_now().await;
            }
            for text in [String::new(), second.id().to_string()] {
                std::fs::write(&path, text).unwrap();
                assert!(server.look(&|_| None, now(), &watch).is_none());
                assert_eq!((main(), server.has_ended()), (Some(first.id()), Some(first.id())));
            }
        })
        .await;
    std::fs::remove_file(&path).unwrap();
    second.kill().unwrap();
    for mut child in [first, second] {
        child.wait().unwrap();
    }
}

#[test]
fn a_server_that_does_not_return_is_looked_for_at_leisure_after_a_while() {
    let gateway = gateway(1);
    let (server, at) = (server(&gateway), now());
    let due = |looked| {
        server.state.borrow_mut().looked = Some(looked);
        server.due().unwrap() - looked
    };
    assert_eq!(due(at), limits::DEATH_LOOK_IDLE);
    server.died.set(Some((at, Cause::Crashed)));
    assert_eq!(due(at + SECOND), limits::DEATH_LOOK);
    assert_eq!(due(at + limits::DEATH_REST_MAX), limits::DEATH_LOOK_IDLE);
}
