//! What attempts cost and what is left of budgets. The day's money outlives the process, in a file.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{Budget, ClientKey, Config, Micros, Price, Target};
use crate::limits;
use crate::observe::health_events;
use crate::route::budget::{
    Account, Books, Estimate, Exhausted, Hold, Subject, Usage, Used, What, When, in_money,
};
use crate::route::{BudgetWhat, Passed};

/// The books, and where they are kept. One for the process.
#[derive(Debug, Default)]
pub struct Spending {
    books: RefCell<Books>,
    file: RefCell<Option<PathBuf>>,
    /// That it cannot be written was said.
    told: Cell<bool>,
    /// The file is not as the books are.
    changed: Cell<bool>,
    writing: Cell<bool>,
}

/// A configuration's accounts.
#[derive(Debug)]
pub struct Accounts {
    targets: Vec<Account>,
    keys: Vec<Account>,
}

impl Accounts {
    /// The account of the client key with this name.
    #[must_use]
    pub fn of_key(&self, keys: &[ClientKey], name: Option<&str>) -> Option<Account> {
        let at = keys.iter().position(|key| Some(key.name.as_str()) == name)?;
        self.keys.get(at).copied()
    }
}

impl Spending {
    /// A configuration's accounts. No budget changes by that.
    pub fn accounts(&self, config: &Config) -> Accounts {
        let mut accounts = self.books.borrow_mut().accounts(budgets(config));
        let keys = accounts.split_off(config.targets.len().min(accounts.len()));
        Accounts { targets: accounts, keys }
    }

    /// The budgets of `config` count from here on, and those of targets that only `tried` has.
    pub fn configure(&self, config: &Config, tried: Option<&Config>) {
        let only = |subject: &Subject<'_>| budgets(config).all(|(known, _)| known != *subject);
        let tried = tried.into_iter().flat_map(budgets).filter(|(subject, _)| only(subject));
        self.books.borrow_mut().configure(budgets(config).chain(tried));
    }

    /// What the account of a target shows.
    #[must_use]
    pub fn usage(&self, accounts: &Accounts, target: usize, when: When) -> Option<Usage> {
        let target = *accounts.targets.get(target)?;
        Some(self.books.borrow_mut().usage(target, when))
    }

    /// Whether a client key has something left. `priced`: of its money, too.
    ///
    /// # Errors
    /// What is used up.
    pub fn key_allows(&self, key: Account, priced: bool, when: When) -> Result<(), Exhausted> {
        self.books.borrow_mut().allows(key, priced, when)
    }

    /// Why a target is not asked, for a request of `key`: its own budget, or the key's money where it costs some.
    #[must_use]
    pub fn bars(
        &self,
        accounts: &Accounts,
        target: usize,
        config: &Target,
        key: Option<Account>,
        when: When,
    ) -> Option<Passed> {
        let of_key = |books: &mut Books, key| books.allows(key, true, when);
        self.barred(accounts, target, config, key, when, of_key)
    }

    /// The same for an attempt that begins now: since its plan was made, others may have taken what was left. Of the
    /// key its money only: the request itself is counted there by now.
    #[must_use]
    pub fn bars_attempt(
        &self,
        accounts: &Accounts,
        target: usize,
        config: &Target,
        key: Option<Account>,
        when: When,
    ) -> Option<Passed> {
        let of_key = |books: &mut Books, key| books.allows_money(key, when);
        self.barred(accounts, target, config, key, when, of_key)
    }

    fn barred(
        &self,
        accounts: &Accounts,
        target: usize,
        config: &Target,
        key: Option<Account>,
        when: When,
        of_key: impl Fn(&mut Books, Account) -> Result<(), Exhausted>,
    ) -> Option<Passed> {
        let priced = config.price.is_some();
        let mut books = self.books.borrow_mut();
        let own = accounts.targets.get(target).map_or(Ok(()), |own| books.allows(*own, priced, when));
        own.and_then(|()| key.filter(|_| priced).map_or(Ok(()), |key| of_key(&mut books, key)))
            .err()
            .map(passed)
    }

    /// A request of `key` is taken on.
    pub fn request(&self, key: Account, when: When) {
        self.books.borrow_mut().request(key, when);
    }

    /// An attempt at `target` begins: what it may use is set aside.
    pub fn begin(
        &self,
        accounts: &Accounts,
        target: usize,
        price: Option<Price>,
        key: Option<Account>,
        estimate: Estimate,
        when: When,
    ) -> Option<Hold> {
        let target = *accounts.targets.get(target)?;
        Some(self.books.borrow_mut().begin(key, target, estimate, price, when))
    }

    /// It is over. Returns what it cost.
    pub fn end(&self, hold: Hold, used: Used, when: When) -> Micros {
        self.books.borrow_mut().end(hold, used, when)
    }

    /// Reads what was spent before this process began, and keeps it in `folder` from here on. For before the first
    /// configuration is taken up.
    pub fn open(&self, folder: &Path, utc: Option<u64>) {
        let path = folder.join("spent");
        let bounded = || {
            let length = std::fs::metadata(&path)?.len();
            if length > limits::BOOKS_BYTES_MAX as u64 {
                return Err(io::Error::other("it is too long"));
            }
            std::fs::read_to_string(&path)
        };
        let read = match bounded() {
            Ok(text) => Books::from_text(&text, utc),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Books::default()),
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(books) => *self.books.borrow_mut() = books,
            Err(why) => health_events::spent_unreadable(&path, &why),
        }
        *self.file.borrow_mut() = Some(path);
    }

    /// Writes the day's money if it has changed, on another thread: a slow disk must not hold up the streams.
    pub async fn keep(&self) {
        let Some((path, text)) = self.due() else { return };
        self.writing.set(true);
        let written = tokio::task::spawn_blocking(move || (write(&path, &text), path)).await;
        self.writing.set(false);
        if let Ok((written, path)) = written {
            self.tell(&path, written);
        }
    }

    /// The same here and now, at the end.
    pub fn keep_now(&self) {
        if let Some((path, text)) = self.due() {
            let written = write(&path, &text);
            self.tell(&path, written);
        }
    }

    fn due(&self) -> Option<(PathBuf, String)> {
        let path = self.file.borrow().clone()?;
        let mut books = self.books.borrow_mut();
        let changed = books.take_changed() || self.changed.get();
        self.changed.set(changed && self.writing.get());
        (changed && !self.writing.get()).then(|| (path, books.to_text()))
    }

    fn tell(&self, path: &Path, written: io::Result<()>) {
        match written {
            Ok(()) => return self.told.set(false),
            Err(error) if !self.told.replace(true) => health_events::spent_unwritable(path, &error),
            Err(_) => {}
        }
        self.changed.set(true);
    }
}

/// Of the targets, then of the keys.
fn budgets(config: &Config) -> impl Iterator<Item = (Subject<'_>, Budget)> {
    let targets = config.targets.iter().map(|target| (Subject::Target(&target.name), target.budget));
    targets.chain(config.keys.iter().map(|key| (Subject::Key(&key.name), key.budget)))
}

fn passed(exhausted: Exhausted) -> Passed {
    let what = match exhausted.what {
        What::Requests => BudgetWhat::Requests,
        What::Tokens => BudgetWhat::Tokens,
        What::Money => BudgetWhat::Money,
    };
    Passed::Budget(what, exhausted.again)
}

/// The whole of it, or nothing.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let aside = path.with_extension("new");
    let mut file = File::create(&aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&aside, path)?;
    // The name is as durable as the text once its folder is.
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Writes the day's money from time to time.
pub async fn keep_written(gateway: std::rc::Rc<super::gateway::Gateway>) {
    loop {
        tokio::time::sleep(limits::SPENT_INTERVAL).await;
        gateway.process.spending.keep().await;
    }
}

/// What each target that costs money may cost a day, for the start: `cloud 5.00 (price assumed)`.
#[must_use]
pub fn caps(config: &Config) -> Vec<String> {
    let capped = config.targets.iter().filter_map(|target| {
        let (price, cap) = (target.price?, target.budget.money_per_day?);
        let assumed = if price.assumed { " (its price is assumed)" } else { "" };
        Some(format!("{} {}{assumed}", target.name, in_money(cap)))
    });
    capped.collect()
}

/// How long until a budget has something again, for `Retry-After`; a minute where nobody knows.
#[must_use]
pub fn again(exhausted: &Exhausted) -> Duration {
    exhausted.again.unwrap_or(Duration::from_secs(60))
}
