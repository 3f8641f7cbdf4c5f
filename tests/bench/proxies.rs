//! Starts and stops what is compared, and reads what it costs from /proc.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::Clients;
use crate::now;
use crate::upstream::Mode;

/// A proxy that does not answer within this does not start.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// After SIGTERM, this long until SIGKILL.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// What a stream goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Via {
    /// Nothing.
    Direct,
    /// nginx, one worker, unbuffered.
    Nginx,
    /// HAProxy, one thread.
    Haproxy,
    /// edgeward, the release binary.
    Edgeward,
}

impl Via {
    /// In the order of the tables.
    pub const ALL: [Via; 4] = [Via::Direct, Via::Nginx, Via::Haproxy, Via::Edgeward];

    /// For people, and for `--only`.
    pub const fn name(self) -> &'static str {
        match self {
            Via::Direct => "direct",
            Via::Nginx => "nginx",
            Via::Haproxy => "haproxy",
            Via::Edgeward => "edgeward",
        }
    }
}

/// A running proxy; ends with its process when dropped.
pub struct Proxy {
    /// Which.
    pub via: Via,
    /// Where it listens.
    pub addr: SocketAddr,
    /// From its start to the first whole answer through it.
    pub ready: Duration,
    child: Option<Child>,
}

/// Memory of a proxy, all its processes together, in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident; pages that processes share are counted for each.
    pub rss: u64,
    /// Resident and neither file-backed nor shared memory.
    pub anon: u64,
    /// Proportional share: shared pages counted once.
    pub pss: u64,
}

/// What all proxies are started with.
pub struct Setup {
    /// For config files, pids and logs.
    pub dir: PathBuf,
    /// The upstream's two listeners.
    pub upstream: [SocketAddr; 2],
    /// The program to measure.
    pub edgeward: PathBuf,
    /// The CPU that proxies have to themselves, if they are pinned.
    pub cpu: Option<usize>,
}

/// A port that was free a moment ago: none of the three proxies can tell which one it chose by itself.
fn free_addr() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

impl Setup {
    /// Starts a proxy, waits until an answer came through it, and says how long that took.
    pub fn start(&self, via: Via) -> io::Result<Proxy> {
        let addr = if via == Via::Direct { self.upstream[0] } else { free_addr()? };
        let file = self.dir.join(format!("{}.conf", via.name()));
        let (program, args, config): (&Path, &[&str], String) = match via {
            Via::Direct => return Ok(Proxy { via, addr, ready: Duration::ZERO, child: None }),
            Via::Nginx => (Path::new("nginx"), &["-c"], self.nginx(addr)),
            Via::Haproxy => (Path::new("haproxy"), &["-db", "-f"], self.haproxy(addr)),
            Via::Edgeward => (&self.edgeward, &["run", "--config"], self.edgeward(addr)),
        };
        fs::write(&file, config)?;
        let mut command = match self.cpu {
            Some(cpu) => {
                let mut command = Command::new("taskset");
                command.arg("-c").arg(cpu.to_string()).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(args).arg(&file).current_dir(&self.dir).stdin(Stdio::null());
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join(format!("{}.log", via.name())))?;
        command.stdout(log.try_clone()?).stderr(log);
        let begun = now();
        let mut proxy = Proxy { via, addr, ready: Duration::ZERO, child: Some(command.spawn()?) };
        proxy.wait_ready(begun, &self.dir)?;
        Ok(proxy)
    }

    fn nginx(&self, addr: SocketAddr) -> String {
        let dir = self.dir.display();
        // As root its worker would become another user, which cannot write here.
        format!(
            "worker_processes 1;\ndaemon off;\nuser root;\npid {dir}/nginx.pid;\nerror_log {dir}/nginx-error.log warn;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\n  access_log off;\n  client_body_temp_path {dir}/nginx-body;\n  proxy_temp_path {dir}/nginx-proxy;\n\
             \x20 fastcgi_temp_path {dir}/nginx-f;\n  uwsgi_temp_path {dir}/nginx-u;\n  scgi_temp_path {dir}/nginx-s;\n\
             \x20 keepalive_requests 100000000;\n  tcp_nodelay on;\n\
             \x20 upstream model {{ server {}; keepalive 128; keepalive_requests 100000000; }}\n\
             \x20 server {{\n    listen {addr};\n    location / {{\n      proxy_pass http://model;\n\
             \x20     proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n      proxy_buffering off;\n    }}\n  }}\n}}\n",
            self.upstream[0]
        )
    }

    fn haproxy(&self, addr: SocketAddr) -> String {
        format!(
            "global\n  nbthread 1\n  maxconn 2048\n\
             defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n\
             \x20 option http-keep-alive\n  option http-no-delay\n  http-reuse always\n\
             frontend lan\n  bind {addr}\n  default_backend model\n\
             backend model\n  server local {}\n",
            self.upstream[0]
        )
    }

    fn edgeward(&self, addr: SocketAddr) -> String {
        format!(
            "listen = [\"{addr}\"]\n\n\
             [[target]]\nname = \"box\"\nkind = \"llamacpp\"\nurl = \"http://{}\"\nplace = \"local\"\ngroup = \"primary\"\n\n\
             [[target]]\nname = \"other\"\nkind = \"openai\"\nurl = \"http://{}/v1\"\nplace = \"lan\"\ngroup = \"fallback\"\n\n\
             [router]\ngroups = [\"primary\", \"fallback\"]\n\n\
             # A breaker would spare the box after its third reset, and there would be no failover to time.\n\
             [breaker]\nenabled = false\n",
            self.upstream[0], self.upstream[1]
        )
    }
}

impl Proxy {
    fn wait_ready(&mut self, begun: Instant, dir: &Path) -> io::Result<()> {
        let failed =
            |what: &str| io::Error::other(format!("{} {what}; see {}", self.via.name(), dir.display()));
        loop {
            match Clients::connect(self.addr, 1) {
                Ok(mut client) => {
                    client
                        .run(Mode::Burst, 1)
                        .map_err(|error| failed(&format!("gave no answer: {error}")))?;
                    self.ready = now() - begun;
                    return Ok(());
                }
                Err(_) if now() - begun > START_PATIENCE => return Err(failed("did not start")),
                Err(_) => std::thread::park_timeout(Duration::from_micros(200)),
            }
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                return Err(failed(&format!("ended at its start ({status})")));
            }
        }
    }

    /// Its process and its workers.
    fn pids(&self) -> Vec<u32> {
        let Some(child) = &self.child else { return Vec::new() };
        let id = child.id();
        let workers = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        std::iter::once(id).chain(workers.split_whitespace().filter_map(|pid| pid.parse().ok())).collect()
    }

    /// Time on a CPU so far, of all its threads, user and system, by the scheduler's own count.
    pub fn cpu(&self) -> Duration {
        let mut nanos = 0;
        for pid in self.pids() {
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
                nanos += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
            }
        }
        Duration::from_nanos(nanos)
    }

    /// What it holds now.
    pub fn memory(&self) -> Memory {
        let mut memory = Memory::default();
        for pid in self.pids() {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            memory.rss += kib(&status, "VmRSS:");
            memory.anon += kib(&status, "RssAnon:");
            memory.pss += kib(&rollup, "Pss:");
        }
        memory
    }
}

fn kib(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            stop(child);
        }
    }
}

/// SIGTERM by process id, so that nginx's master ends its worker too; SIGKILL only after a while.
pub fn stop(child: &mut Child) {
    let asked = Command::new("sh").arg("-c").arg(format!("kill -TERM {}", child.id())).status();
    let begun = now();
    while asked.is_ok() && now() - begun < STOP_PATIENCE {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    drop(child.kill());
    drop(child.wait());
}
