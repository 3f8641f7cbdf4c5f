//! A changed configuration takes effect: all at once, or, where it changes the routing and says so, as a rollout. One
//! that cannot be used changes nothing.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::changes::Changes;
use super::fixed::keep_fixed;
use super::listeners::{self, Listeners, Prepared};
use super::run::server_tls;
use super::{footing, serving};
use crate::config::rollout::{Pick, Reason, Verdict};
use crate::config::{self, Config, DEFAULT_PATH, Loaded, Problems};
use crate::observe::{self, reload_events as events};
use crate::proxy::current::Current;
use crate::proxy::gateway::Gateway;
use crate::proxy::refused::Refused;
use crate::proxy::rollout::{Candidate, Trial};
use crate::proxy::upstream::ProxyRules;
use crate::time::now;

/// Where the configuration comes from.
pub(super) struct Source {
    /// As it was named; `None` is the default, which need not exist.
    path: Option<PathBuf>,
    changes: Changes,
}

/// Who asks for a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A signal, or systemd's order.
    Order,
    /// The file holds something else.
    Change,
}

impl Source {
    /// To be made before the configuration is loaded, so that no change is missed.
    pub fn new(path: Option<&Path>) -> Self {
        Source {
            path: path.map(Path::to_owned),
            changes: Changes::new(path.unwrap_or(Path::new(DEFAULT_PATH))),
        }
    }

    fn load(&mut self, by: By) -> Result<Loaded, Problems> {
        // A process's environment is the same at each reload.
        let env = |name: &str| std::env::var(name).ok();
        match (by, &self.path) {
            (By::Order, path) => {
                // What is loaded now needs no second time.
                self.changes.look();
                config::load_or_discover(path.as_deref(), &env)
            }
            // A file that somebody takes away is no wish to serve without one.
            (By::Change, path) => config::load(path.as_deref().unwrap_or(Path::new(DEFAULT_PATH)), &env),
        }
    }
}

/// What a reload changes.
pub(super) struct Serving {
    current: Rc<Current>,
    listeners: Listeners,
    source: Source,
    /// What goes on for the gateway in use.
    kept: Kept,
    /// The same for a rollout's candidate.
    tried: Option<Kept>,
}

/// A loaded configuration, and everything that it needs and could be refused for.
struct Renewed {
    stable: Rc<Gateway>,
    candidate: Option<Candidate>,
    tls: Option<TlsAcceptor>,
    listeners: Prepared,
    /// As it will be in use, with what only a restart changes left as it is.
    config: Config,
    restart: Vec<&'static str>,
}

impl Serving {
    /// From the start on.
    pub fn new(current: &Rc<Current>, listeners: Listeners, mut source: Source) -> Self {
        source.changes.watch();
        let kept = Kept::of(&current.get());
        Serving { current: Rc::clone(current), listeners, source, kept, tried: None }
    }

    /// Waits until the configuration file holds something else.
    pub async fn file_changed(&mut self) {
        self.source.changes.next().await;
    }

    /// A changed configuration for new requests; running ones keep theirs. One with mistakes changes nothing.
    pub fn reload(&mut self, by: By) {
        let process = Rc::clone(&self.current.get().process);
        let (why, refused) = match self.source.load(by) {
            Err(problems) => (problems.to_string(), Refused::by_mistakes(problems, now())),
            Ok(loaded) => {
                let file = loaded.config.source.clone();
                match self.renew(loaded) {
                    Ok(renewed) => {
                        process.refused.take();
                        return self.take_up(renewed);
                    }
                    Err(why) => {
                        let refused = Refused::unable(file.as_deref(), why.trim_end(), now());
                        (why, Some(refused))
                    }
                }
            }
        };
        events::reload_failed(why.trim_end());
        let before = process.refused.borrow().as_ref().map(|before| before.since);
        *process.refused.borrow_mut() =
            refused.map(|refused| Refused { since: before.unwrap_or(refused.since), ..refused });
    }

    /// Each target that was looked for becomes what answers in its place.
    pub fn know_servers(&mut self) {
        let old = self.current.get();
        let mut config = old.config.clone();
        old.process.sights.apply(&mut config);
        // A rollout ends first: its two routings are about the same targets. The next look says it again.
        if config == old.config || self.current.candidate().is_some() {
            return;
        }
        match old.renewed(config, &ProxyRules::from_env()) {
            Ok(renewed) => {
                let renewed = Rc::new(renewed);
                self.kept = Kept::of(&renewed);
                self.current.replace(renewed);
            }
            Err(error) => observe::fine("A server that was found cannot be used", None, &error),
        }
    }

    /// Everything that may fail. Nothing is changed yet.
    fn renew(&self, loaded: Loaded) -> Result<Renewed, String> {
        let mut config = loaded.config;
        self.current.get().process.sights.apply(&mut config);
        footing::descriptors(&mut config.limits);
        let old = self.current.get();
        let mut tls = server_tls(&config)?;
        let mut restart = keep_fixed(&old.config, &mut config);
        // A listener that speaks both is none that a client can rely on.
        if tls.is_some() != self.current.tls().is_some() {
            tls = self.current.tls();
            config.tls.clone_from(&old.config.tls);
            restart.push("tls");
        }
        let proxies = ProxyRules::from_env();
        let renewed = |gateway: &Gateway, config: &Config| {
            gateway.renewed(config.clone(), &proxies).map(Rc::new).map_err(|e| e.to_string())
        };
        let (stable, candidate) = match self.trial(&old.config, &config) {
            None => (renewed(&old, &config)?, None),
            Some(trial) => {
                let before = config.with_routing_of(&old.config);
                // It stays as warm as it is where nothing else has changed.
                let stable = if before == old.config { old } else { renewed(&old, &before)? };
                let gateway = renewed(&stable, &config)?;
                (stable, Some(Candidate { gateway, trial }))
            }
        };
        let listeners = self.listeners.prepare(&config)?;
        Ok(Renewed { stable, candidate, tls, listeners, config, restart })
    }

    /// The trial that a changed routing has to stand, if it has to: the one under way, where it is about the same.
    fn trial(&self, old: &Config, new: &Config) -> Option<Rc<Trial>> {
        let terms = new.rollout.as_ref().filter(|_| !new.routes_like(old))?;
        let running = self.current.candidate().filter(|running| {
            new.routes_like(&running.gateway.config) && running.trial.judge().terms() == terms
        });
        Some(running.map_or_else(|| Trial::new(terms.clone()), |running| running.trial))
    }

    fn take_up(&mut self, renewed: Renewed) {
        let Renewed { stable, candidate, tls, listeners, config, restart } = renewed;
        let old = self.current.get();
        let before = self.current.candidate();
        let newest = before.as_ref().map_or(&old, |candidate| &candidate.gateway);
        let told = events::Reloaded {
            targets: config.targets.len(),
            restart: &restart,
            diff: &config::diff(&newest.config, &config),
        };
        if self.listeners.has_passed() && old.config.listen != config.listen {
            listeners::passed_win(&self.listeners.addresses(), &config);
        }
        self.listeners.apply(listeners, &config);
        self.current.set_tls(tls);
        if !Rc::ptr_eq(&stable, &old) {
            self.kept = Kept::of(&stable);
        }
        self.tried = candidate.as_ref().map(|candidate| Kept::of(&candidate.gateway));
        let goes_on =
            |trial: &Rc<Trial>| before.as_ref().is_some_and(|before| Rc::ptr_eq(&before.trial, trial));
        events::reloaded(&told);
        if let Some(before) = &before
            && let Some(verdict) = cut_short(before, &old.config, &config, candidate.as_ref())
        {
            tell(before, verdict);
        }
        match candidate {
            Some(candidate) => {
                if !goes_on(&candidate.trial) {
                    let judge = candidate.trial.judge();
                    let terms = judge.terms();
                    events::rollout_started(terms.share.0, terms.hold, terms.min_samples);
                }
                self.current.try_out(stable, candidate);
            }
            None => self.current.replace(stable),
        }
    }

    /// A rollout ends.
    pub fn decide(&mut self, verdict: Verdict) {
        if verdict == Verdict::Hold {
            return;
        }
        let Some(candidate) = self.current.end_rollout() else { return };
        let tried = self.tried.take();
        tell(&candidate, verdict);
        if let (Verdict::Promote { .. }, Some(tried)) = (verdict, tried) {
            self.kept = tried;
            self.current.replace(candidate.gateway);
        }
    }

    /// No new connections, and nothing that goes on beside the running ones.
    pub async fn close(self) {
        self.listeners.close().await;
    }
}

/// How the rollout of `before` ends by a reload, if it does: one of the same routing goes on, or begins again.
fn cut_short(before: &Candidate, old: &Config, new: &Config, next: Option<&Candidate>) -> Option<Verdict> {
    if new.routes_like(old) {
        return Some(Verdict::RollBack(Reason::Withdrawn));
    }
    if !new.routes_like(&before.gateway.config) {
        return Some(Verdict::RollBack(Reason::Replaced));
    }
    let judge = before.trial.judge();
    let few = judge.side(Pick::New).requests < judge.terms().min_samples;
    next.is_none().then_some(Verdict::Promote { few })
}

fn tell(candidate: &Candidate, verdict: Verdict) {
    let judge = candidate.trial.judge();
    let side = |pick| {
        let side = judge.side(pick);
        events::Side {
            requests: side.requests,
            rescued: side.rescued,
            failed: side.failed,
            first_token_p95: side.first_token_p95(),
        }
    };
    let (new, old) = (side(Pick::New), side(Pick::Old));
    match verdict {
        Verdict::Hold => {}
        Verdict::Promote { few } => events::rollout_promoted(&new, &old, few),
        Verdict::RollBack(reason) => events::rollout_rolled_back(reason.in_words(), &new, &old),
    }
}

/// What goes on beside the requests for as long as a gateway is in use; it ends with this.
struct Kept(Vec<JoinHandle<()>>);

impl Kept {
    fn of(gateway: &Rc<Gateway>) -> Self {
        Kept(serving::keep(gateway).into())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Weak;

    use tokio::task::LocalSet;

    use super::*;
    use crate::cli::listeners::Open;
    use crate::config::{Known, Sight};
    use crate::route::budget::{Estimate, Used};

    const OLD: &str =
        "[[target]]\nname = \"a\"\nkind = \"ollama\"\nurl = \"http://127.0.0.1:1\"\nspare = true\n";

    const ROLLOUT: &str = "[rollout]\nmin_samples = 5\n";

    /// Runs `test` on what serves with [`OLD`], the file that it was loaded from, and what writes another one there.
    fn served(name: &str, test: impl AsyncFnOnce(Rc<Current>, &mut Serving, &dyn Fn(String))) {
        let folder = std::env::temp_dir().join(format!("edgeward-reload-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("edgeward.toml");
        let write = |text: String| {
            let listen = if text.contains("listen") { "" } else { "listen = [\"127.0.0.1:0\"]\n" };
            std::fs::write(&path, format!("{listen}{text}")).unwrap();
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            write(OLD.to_owned());
            let source = Source::new(Some(&path));
            let config = config::load(&path, &|_: &str| None).unwrap().config;
            let gateway = Gateway::new(config, &ProxyRules::from_env(), None).unwrap();
            let current = Current::new(Rc::new(gateway), None);
            let listeners = Listeners::accept(&current, Open::default());
            let mut serving = Serving::new(&current, listeners, source);
            test(current, &mut serving, &write).await;
            serving.close().await;
        });
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// The process has one set of places and budgets for all configurations: it is that of the one in use.
    #[test]
    fn what_is_not_in_use_changes_no_bound() {
        served("bounds", async |current, serving, write| {
            let bounds = |places: u32, requests: u32| {
                format!("{OLD}max_concurrent = {places}\nbudget = {{ requests_per_minute = {requests} }}\n")
            };
            write(bounds(1, 1));
            serving.reload(By::Order);
            let gateway = current.get();
            let process = Rc::clone(&gateway.process);
            let _inside = process.places.take(gateway.lanes[0], now()).unwrap();
            let estimate = Estimate { input: 1, output_max: None };
            let when = gateway.when(now());
            let held = process.spending.begin(&gateway.accounts, 0, None, None, estimate, when);
            let full = || {
                let gateway = current.get();
                let config = &gateway.config.targets[0];
                let barred = process.spending.bars(&gateway.accounts, 0, config, None, gateway.when(now()));
                [!process.places.is_free(gateway.lanes[0]), barred.is_some()]
            };
            assert_eq!(full(), [true; 2]);

            let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            write(format!("listen = [\"{}\"]\n{}", taken.local_addr().unwrap(), bounds(2, 2)));
            serving.reload(By::Order);
            assert_eq!(full(), [true; 2], "nothing is changed where it cannot listen");

            write(bounds(2, 2) + ROLLOUT);
            serving.reload(By::Order);
            assert_eq!(full(), [true; 2], "nor while it is tried");
            serving.decide(Verdict::RollBack(Reason::Fails));
            assert_eq!(full(), [true; 2], "nor when it was");
            serving.reload(By::Order);
            serving.decide(Verdict::Promote { few: true });
            assert_eq!(full(), [false; 2]);
            process.spending.end(held.unwrap(), Used::Nothing, when);
        });
    }

    /// A port's target becomes what answers there, and stays that when the file is read again.
    #[test]
    fn a_server_that_was_found_in_anothers_place_is_a_target() {
        served("found", async |current, serving, write| {
            write(String::new());
            serving.reload(By::Order);
            let names =
                || current.get().config.targets.iter().map(|t| t.name.clone()).take(5).collect::<Vec<_>>();
            assert_eq!(names(), ["ollama", "vllm", "llamacpp", "sglang", "lmstudio"]);
            let before = current.get();
            serving.know_servers();
            assert!(Rc::ptr_eq(&before, &current.get()), "nothing is new");
            before.process.sights.saw(8000, Some(Sight::Server(Known::Llamacpp)), now());
            before.process.sights.saw(8080, Some(Sight::Stranger), now());
            serving.know_servers();
            assert_eq!(names(), ["ollama", "llamacpp-8000", "llamacpp", "sglang", "lmstudio"]);
            write("heartbeat = \"20s\"\n".to_owned());
            serving.reload(By::Order);
            assert!(current.get().config.heartbeat.is_some());
            assert_eq!(names()[1], "llamacpp-8000");
        });
    }

    /// What is let go of does not go on: a gateway that nobody holds has no task that looks or probes for it.
    #[test]
    fn what_a_reload_has_replaced_is_let_go_of() {
        served("gone", async |current, serving, write| {
            let gone = async |gateway: Weak<Gateway>| {
                let patience = 100_000;
                for _ in (0..patience).take_while(|_| gateway.strong_count() > 0) {
                    tokio::task::yield_now().await;
                }
                assert_eq!(gateway.strong_count(), 0);
            };
            let stable = || Rc::downgrade(&current.get());
            let candidate = || Rc::downgrade(&current.candidate().unwrap().gateway);

            let first = stable();
            write(OLD.replace("http://127.0.0.1:1", "http://127.0.0.1:2"));
            serving.reload(By::Order);
            gone(first).await;

            let second = stable();
            write(OLD.to_owned() + ROLLOUT);
            serving.reload(By::Order);
            gone(second).await;
            let (third, tried) = (stable(), candidate());
            serving.decide(Verdict::RollBack(Reason::Fails));
            gone(tried).await;
            assert!(third.ptr_eq(&stable()));

            serving.reload(By::Order);
            assert!(third.ptr_eq(&stable()), "nothing but the routing is new");
            let tried = candidate();
            serving.decide(Verdict::Promote { few: true });
            gone(third).await;
            assert!(tried.ptr_eq(&stable()));
        });
    }
}
