//! What the built program says to systemd, takes from it, and leaves running when it is stopped; with a notify
//! socket of the test's own. Under a real systemd: `tests/systemd/run`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helpers may fail the test")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Anything that is waited for is there within this, or the test fails.
const SOON: Duration = Duration::from_secs(15);

/// A model server with one token at once, and the rest of the answer when the test says so.
struct Upstream {
    port: u16,
    go: Sender<()>,
}

impl Upstream {
    fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (go, gone) = channel();
        thread::spawn(move || {
            for socket in listener.incoming() {
                serve(socket.unwrap(), &gone);
            }
        });
        Upstream { port, go }
    }
}

fn serve(mut socket: TcpStream, go: &Receiver<()>) {
    let mut lines = BufReader::new(socket.try_clone().unwrap());
    let (mut line, mut length) = (String::new(), 0);
    while lines.read_line(&mut line).unwrap_or(0) > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    if length == 0 || lines.read_exact(&mut vec![0; length]).is_err() {
        return;
    }
    let token = |content: &str, end: &str| {
        let event = format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":\
             [{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}},\"finish_reason\":{end}}}]}}\n\n"
        );
        format!("{:x}\r\n{event}\r\n", event.len())
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    let _ = socket.write_all(format!("{head}{}", token("first", "null")).as_bytes());
    let _ = go.recv_timeout(SOON);
    let done = "data: [DONE]\n\n";
    let end = format!("{}{:x}\r\n{done}\r\n0\r\n\r\n", token("last", "\"stop\""), done.len());
    let _ = socket.write_all(end.as_bytes());
}

/// The program with a notify socket; killed by its process id when dropped.
struct Service {
    child: Child,
    told: UnixDatagram,
    folder: PathBuf,
    stderr: Receiver<String>,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Service {
    fn start(config: &str, env: &[(&str, &str)], passed: Option<TcpListener>) -> Service {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("handover-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let (config_file, notify) = (folder.join("edgeward.toml"), folder.join("notify"));
        std::fs::write(&config_file, config).unwrap();
        let told = UnixDatagram::bind(&notify).unwrap();
        told.set_read_timeout(Some(SOON)).unwrap();
        // A shell puts the socket where systemd does, and is replaced: LISTEN_PID is the program's own.
        let place =
            "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=client; exec \"$@\"";
        let mut command = match passed {
            Some(listener) => {
                let mut command = Command::new("/bin/sh");
                command.args(["-c", place, "sh", env!("CARGO_BIN_EXE_edgeward")]);
                command.stdin(OwnedFd::from(listener));
                command
            }
            None => Command::new(env!("CARGO_BIN_EXE_edgeward")),
        };
        let mut child = command
            .args(["run".as_ref(), "--config".as_ref(), config_file.as_os_str()])
            .env_clear()
            .env("NOTIFY_SOCKET", &notify)
            .envs(env.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (tell, stderr) = channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Service { child, told, folder, stderr }
    }

    /// The next message that holds `part`.
    fn told(&self, part: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let length = match self.told.recv(&mut buffer) {
                Ok(length) => length,
                // A call with a time limit is not taken up again after the process was stopped and went on.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => panic!("no {part}: {error}"),
            };
            let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if message.contains(part) {
                return message;
            }
        }
    }

    /// The next line on stderr that holds `part`.
    fn said(&self, part: &str) -> String {
        loop {
            let line = self.stderr.recv_timeout(SOON).unwrap_or_else(|error| panic!("no {part}: {error}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    fn address(&self) -> SocketAddr {
        self.said("listening on http://").rsplit_once('/').unwrap().1.parse().unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

fn config(upstream: &Upstream, name: &str) -> String {
    format!(
        "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"{name}\"\nkind = \"openai\"\nurl = \
         \"http://127.0.0.1:{}/v1\"\nplace = \"local\"\n",
        upstream.port
    )
}

/// A streamed request, up to its first token.
fn ask(address: SocketAddr) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).unwrap();
    let (mut read, mut buffer) = (String::new(), [0; 4096]);
    while !read.contains("first") {
        let length = socket.read(&mut buffer).unwrap();
        assert!(length > 0, "{read}");
        read.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    (socket, read)
}

fn rest(mut socket: TcpStream) -> String {
    let mut rest = String::new();
    socket.read_to_string(&mut rest).unwrap();
    rest
}

#[test]
fn it_is_ready_alive_and_reloads() {
    let upstream = Upstream::start();
    let service = Service::start(&config(&upstream, "box"), &[("WATCHDOG_USEC", "200000")], None);
    assert!(service.told("READY=1").contains("STATUS="));
    let address = service.address();
    for _ in 0..3 {
        service.told("WATCHDOG=1");
    }
    let (running, head) = ask(address);
    assert!(head.contains("x-edgeward-target: box"), "{head}");
    std::fs::write(service.folder.join("edgeward.toml"), "listen = 7").unwrap();
    service.signal("-HUP");
    assert!(service.told("RELOADING=1").contains("MONOTONIC_USEC="));
    service.told("READY=1");
    assert!(service.said("reload_failed").contains("listen"));
    std::fs::write(service.folder.join("edgeward.toml"), config(&upstream, "other")).unwrap();
    service.signal("-HUP");
    service.told("RELOADING=1");
    service.told("READY=1");
    upstream.go.send(()).unwrap();
    assert!(rest(running).contains("[DONE]"), "a running stream keeps what it began with");
    let (running, head) = ask(address);
    assert!(head.contains("x-edgeward-target: other"), "{head}");
    upstream.go.send(()).unwrap();
    assert!(rest(running).contains("[DONE]"));
    service.signal("-TERM");
    service.told("STOPPING=1");
}

#[test]
fn a_stopped_service_has_a_successor_while_its_stream_goes_on() {
    let upstream = Upstream::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let env = [("EDGEWARD_HANDOVER", "yes")];
    let mut first = Service::start(&config(&upstream, "one"), &env, Some(listener.try_clone().unwrap()));
    first.told("READY=1");
    assert!(first.said("passed_sockets").contains("edgeward.socket says"));
    let (running, _) = ask(address);
    first.signal("-TERM");
    first.told("STOPPING=1");
    assert_eq!(first.child.wait().unwrap().code(), Some(0), "the main process waits for no stream");
    // Connects while nobody accepts.
    let waiting = thread::spawn(move || ask(address));
    let other = Upstream::start();
    let second = Service::start(&config(&other, "two"), &env, Some(listener));
    second.told("READY=1");
    let (fresh, head) = waiting.join().expect("no connection is lost");
    assert!(head.contains("x-edgeward-target: two"), "{head}");
    other.go.send(()).unwrap();
    assert!(rest(fresh).contains("[DONE]"));
    upstream.go.send(()).unwrap();
    let end = rest(running);
    assert!(end.contains("last") && end.contains("[DONE]"), "{end}");
    second.signal("-TERM");
    second.told("STOPPING=1");
}

#[test]
fn a_socket_open_to_the_network_needs_a_key_or_a_word() {
    let upstream = Upstream::start();
    let open = || TcpListener::bind("0.0.0.0:0").unwrap();
    let mut service = Service::start(&config(&upstream, "box"), &[], Some(open()));
    assert_eq!(service.child.wait().unwrap().code(), Some(78));
    service.said("edgeward.socket is open to the network");
    let allowed = format!(
        "allow_anonymous = true\n{}",
        config(&upstream, "box").replace("127.0.0.1:0\"", "0.0.0.0:0\"")
    );
    let service = Service::start(&allowed, &[], Some(open()));
    service.told("READY=1");
}

/// systemd's sockets stay where they are, and stay closed to those whom no key lets in.
#[test]
fn a_reload_moves_no_socket_of_systemd_s_and_opens_none() {
    let upstream = Upstream::start();
    let key = "[[key]]\nname = \"lan\"\nsha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n";
    let base = config(&upstream, "box");
    let open = TcpListener::bind("0.0.0.0:0").unwrap();
    let at = open.local_addr().unwrap();
    let service = Service::start(&(base.clone() + key), &[], Some(open));
    service.told("READY=1");
    let rewrite = |text: &str| std::fs::write(service.folder.join("edgeward.toml"), text).unwrap();
    rewrite(&base);
    assert!(service.said("reload_failed").contains("edgeward.socket is open to the network"));
    let moved = base.replace("127.0.0.1:0", "127.0.0.1:1");
    rewrite(&(moved + key));
    let said = service.said("passed_sockets");
    assert!(said.contains(&format!("listening on {at}")) && said.contains("not on 127.0.0.1:1"), "{said}");
    assert!(service.said("reloaded").contains("127.0.0.1:1"));
    service.told("RELOADING=1");
    service.told("READY=1");
    assert!(TcpStream::connect(("127.0.0.1", at.port())).is_ok());
}
