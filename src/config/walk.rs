//! The walk over a TOML tree: collects every mistake with its line, and goes on.

use std::fmt::Display;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::credential::ECHO_BYTES;
use super::problem::{Problem, Reader};
use super::schema;
use super::value::{self, Fault, Words, nearest, shown, text, type_name};

/// How environment variables are read; a closure, so that tests have an environment of their own.
pub type Env<'e> = dyn Fn(&str) -> Option<String> + 'e;

/// A key, for messages, and the line that it stands on.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub key: String,
    /// `None` outside a file.
    pub line: Option<usize>,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub value: T,
    pub spot: Spot,
}

/// What the walk knows and collects.
pub(super) struct Walk<'a> {
    pub text: &'a str,
    /// `None` when there is no file and the environment is the configuration.
    pub file: Option<&'a Path>,
    pub env: &'a Env<'a>,
    pub reader: Reader,
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
    /// Lines with a syntax error, in order: what was recovered from them is a guess, so nothing is said about them.
    pub broken: Vec<usize>,
    /// From this line on a bracket is open: what stands below was put into the wrong table.
    pub lost_from: usize,
}

impl<'a> Walk<'a> {
    pub fn new(text: &'a str, file: Option<&'a Path>, env: &'a Env<'a>) -> Self {
        Walk {
            text,
            file,
            env,
            reader: Reader::Service,
            problems: Vec::new(),
            warnings: Vec::new(),
            broken: Vec::new(),
            lost_from: usize::MAX,
        }
    }

    pub fn problem(&mut self, spot: &Spot, what: impl Display, hint: impl Display) {
        self.told(spot, &what, &hint, false);
    }

    #[inline(never)]
    pub fn fault(&mut self, spot: &Spot, fault: Fault) {
        if spot.line.is_some_and(|line| self.is_broken(line) || line > self.lost_from) {
            return;
        }
        let problem = self.at(spot, fault);
        self.problems.push(problem);
    }

    /// Something that may not be read here: for an operator's command no mistake, since the service may well read it.
    pub fn denied(&mut self, spot: &Spot, fault: Fault) {
        match self.reader {
            Reader::Service => self.fault(spot, fault),
            Reader::Operator => {
                let what = format!("{}; that is for the service to read, and was not checked", fault.what);
                self.warning(spot, &what, &fault.hint.as_deref().unwrap_or_default());
            }
        }
    }

    /// A syntax error stands on this line.
    pub fn is_broken(&self, line: usize) -> bool {
        self.broken.binary_search(&line).is_ok()
    }

    pub fn is_broken_from_now_on(&mut self, line: usize) {
        if let Err(at) = self.broken.binary_search(&line) {
            self.broken.insert(at, line);
        }
    }

    /// A mistake that is an absence. Behind a syntax error the missing thing may well be there.
    pub fn missing(&mut self, spot: &Spot, what: impl Display, hint: impl Display) {
        self.told(spot, &what, &hint, true);
    }

    /// Not compiled anew for each kind of words.
    #[inline(never)]
    fn told(&mut self, spot: &Spot, what: &dyn Display, hint: &dyn Display, missing: bool) {
        if !missing || self.broken.is_empty() {
            self.fault(spot, Fault::new(what.to_string(), hint.to_string()));
        }
    }

    pub fn warn(&mut self, spot: &Spot, what: impl Display, hint: impl Display) {
        self.warning(spot, &what, &hint);
    }

    #[inline(never)]
    fn warning(&mut self, spot: &Spot, what: &dyn Display, hint: &dyn Display) {
        let warning = self.at(spot, Fault::new(what.to_string(), hint.to_string()));
        self.warnings.push(warning);
    }

    fn at(&self, spot: &Spot, fault: Fault) -> Problem {
        Problem {
            file: self.file.map(Path::to_owned),
            line: spot.line,
            key: spot.key.clone(),
            what: fault.what.into_owned(),
            hint: fault.hint.map(Words::into_owned),
        }
    }

    pub fn line(&self, offset: usize) -> usize {
        self.text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
    }
}

/// One table of the file, and the keys that it may have.
#[derive(Clone)]
pub(super) struct Section<'t, 'i> {
    table: &'t DeTable<'i>,
    pub spot: Spot,
    known: &'static schema::Keys,
}

impl<'t, 'i> Section<'t, 'i> {
    /// Reports each key that `known` does not have.
    pub fn open(
        walk: &mut Walk<'_>,
        table: &'t DeTable<'i>,
        spot: Spot,
        known: &'static schema::Keys,
    ) -> Self {
        let section = Section { table, spot, known };
        for key in table.keys() {
            let name = key.get_ref();
            if known.free || known.names.contains(&&**name) {
                continue;
            }
            let mut spot = section.named(name, walk.line(key.span().start));
            if known.secret && name.len() > ECHO_BYTES {
                spot.key.clone_from(&section.spot.key);
            }
            let slip = known.slips.iter().find(|(slip, _)| slip == name).map(|(_, hint)| (*hint).to_owned());
            let hint = slip
                .or_else(|| {
                    nearest(name, known.names.iter().copied()).map(|near| format!("did you mean \"{near}\"?"))
                })
                .or_else(|| schema::home(name).map(|home| format!("it belongs {home}")))
                .unwrap_or_else(|| format!("{} has: {}", known.title, known.names.join(", ")));
            let what = if spot.key == section.spot.key {
                "has a key that does not exist"
            } else {
                "is not a key that exists here"
            };
            walk.problem(&spot, what, hint);
        }
        section
    }

    #[inline(never)]
    fn named(&self, key: &str, line: usize) -> Spot {
        let key = if !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)) {
            key.to_owned()
        } else {
            shown(key)
        };
        let key = if self.spot.key.is_empty() { key } else { format!("{}.{key}", self.spot.key) };
        Spot { key, line: Some(line) }
    }

    /// Where `key` stands, or where its section does.
    pub fn spot(&self, walk: &Walk<'_>, key: &str) -> Spot {
        match self.table.get_key_value(key) {
            Some((key, _)) => self.named(key.get_ref(), walk.line(key.span().start)),
            None => Spot { key: self.named(key, 0).key, line: self.spot.line },
        }
    }

    /// Where `key` of the table `section` below this one stands, or where the nearest thing around it does.
    pub fn spot_below(&self, walk: &Walk<'_>, section: &str, key: &str) -> Spot {
        let outer = self.spot(walk, section);
        let found = match self.table.get(section).map(Spanned::get_ref) {
            Some(DeValue::Table(table)) => table.get_key_value(key),
            _ => None,
        };
        let line = found.map(|(key, _)| walk.line(key.span().start)).or(outer.line);
        Spot { key: format!("{}.{key}", outer.key), line }
    }

    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    #[inline(never)]
    pub fn get(&self, walk: &Walk<'_>, key: &str) -> Option<At<&'t Spanned<DeValue<'i>>>> {
        debug_assert!(self.known.names.contains(&key), "{key} is missing in the schema's table");
        self.table.get(key).map(|value| At { value, spot: self.spot(walk, key) })
    }

    /// The value of `key` as `read` understands it; a fault is reported.
    pub fn value<T>(
        &self,
        walk: &mut Walk<'_>,
        key: &str,
        read: impl Fn(&DeValue<'i>) -> Result<T, Fault>,
    ) -> Option<T> {
        self.value_by(walk, key, &read)
    }

    /// One for all readers of a type: there are many keys.
    #[inline(never)]
    fn value_by<T>(
        &self,
        walk: &mut Walk<'_>,
        key: &str,
        read: &dyn Fn(&DeValue<'i>) -> Result<T, Fault>,
    ) -> Option<T> {
        self.read(walk, key, read).map(|at| at.value)
    }

    pub fn flag(&self, walk: &mut Walk<'_>, key: &str) -> Option<bool> {
        self.value(walk, key, value::flag)
    }

    /// A count between `min` and `max`. Every count is bounded far below [`u32::MAX`] where this is used.
    pub fn count(&self, walk: &mut Walk<'_>, key: &str, min: u64, max: u64) -> Option<u32> {
        let count = self.value(walk, key, |value| value::count(value, min, max))?;
        Some(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// One of a few words.
    pub fn word<T: Copy>(&self, walk: &mut Walk<'_>, key: &str, choices: &[(&str, T)]) -> Option<T> {
        self.value(walk, key, |value| value::choice(value, choices))
    }

    /// The same as [`Section::value`], and where it stands.
    pub fn read<T>(
        &self,
        walk: &mut Walk<'_>,
        key: &str,
        read: impl FnOnce(&DeValue<'i>) -> Result<T, Fault>,
    ) -> Option<At<T>> {
        let At { value, spot } = self.get(walk, key)?;
        match read(value.get_ref()) {
            Ok(value) => Some(At { value, spot }),
            Err(fault) => {
                walk.fault(&spot, fault);
                None
            }
        }
    }

    pub fn text(&self, walk: &mut Walk<'_>, key: &str) -> Option<At<String>> {
        self.read(walk, key, text)
    }

    /// A list of strings. Each element has its own line.
    pub fn texts(&self, walk: &mut Walk<'_>, key: &str, example: &str) -> Option<Vec<At<String>>> {
        let At { value, spot } = self.get(walk, key)?;
        let DeValue::Array(array) = value.get_ref() else {
            let what = format!("must be a list of strings, not {}", type_name(value.get_ref()));
            walk.problem(&spot, what, format_args!("write {key} = {example}"));
            return None;
        };
        let mut texts = Vec::new();
        for (n, element) in array.iter().enumerate() {
            let line = Some(walk.line(element.span().start));
            let spot = Spot { key: format!("{}[{n}]", spot.key, n = n + 1), line };
            match text(element.get_ref()) {
                Ok(value) => texts.push(At { value, spot }),
                Err(fault) => walk.fault(&spot, fault),
            }
        }
        Some(texts)
    }

    /// A table below this one: `[key]` or `key = { … }`.
    pub fn table(
        &self,
        walk: &mut Walk<'_>,
        key: &str,
        known: &'static schema::Keys,
    ) -> Option<Section<'t, 'i>> {
        let At { value, spot } = self.get(walk, key)?;
        let DeValue::Table(table) = value.get_ref() else {
            let what = format!("must be a table, not {}", type_name(value.get_ref()));
            let or = if self.spot.key.is_empty() {
                format!(" or [{key}] with its keys below")
            } else {
                String::new()
            };
            walk.problem(&spot, what, format_args!("write {key} = {{ … }}{or}"));
            return None;
        };
        Some(Section::open(walk, table, spot, known))
    }

    /// An array of tables, `[[key]]`. `label` names one from its table, where it has a usable name.
    pub fn tables(
        &self,
        walk: &mut Walk<'_>,
        key: &str,
        known: &'static schema::Keys,
        label: impl Fn(&DeTable<'i>) -> Option<String>,
    ) -> Option<Vec<Section<'t, 'i>>> {
        let At { value, spot } = self.get(walk, key)?;
        let DeValue::Array(array) = value.get_ref() else {
            let what = format!("must be a list of tables, not {}", type_name(value.get_ref()));
            walk.problem(&spot, what, format_args!("write [[{key}]], with two brackets"));
            return None;
        };
        let mut sections = Vec::new();
        for (n, element) in array.iter().enumerate() {
            let n = n + 1;
            let mut spot = Spot { key: format!("{key}[{n}]"), line: Some(walk.line(element.span().start)) };
            let DeValue::Table(table) = element.get_ref() else {
                let what = format!("must be a table, not {}", type_name(element.get_ref()));
                walk.problem(&spot, what, format_args!("write [[{key}]] with its keys below"));
                continue;
            };
            if let Some(name) = label(table) {
                spot.key = format!("{key} \"{name}\"");
            }
            sections.push(Section::open(walk, table, spot, known));
        }
        Some(sections)
    }

    /// The tables of an array of tables as they stand, with nothing reported.
    pub fn raw_tables(&self, key: &str) -> impl Iterator<Item = &'t DeTable<'i>> {
        let array = match self.table.get(key).map(Spanned::get_ref) {
            Some(DeValue::Array(array)) => Some(array),
            _ => None,
        };
        array.into_iter().flat_map(|array| array.iter()).filter_map(|element| match element.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => None,
        })
    }

    /// Every key and value in the order of the file; for tables whose keys are the user's own.
    pub fn entries(&self, walk: &Walk<'_>) -> Vec<(String, At<&'t Spanned<DeValue<'i>>>)> {
        sorted(self.table.iter().collect(), |(key, _)| key.span().start)
            .into_iter()
            .map(|(key, value)| {
                let spot = self.named(key.get_ref(), walk.line(key.span().start));
                (key.get_ref().to_string(), At { value, spot })
            })
            .collect()
    }
}

/// `all` by `key`; equal ones stay as they are. What is sorted is pairs of numbers, whatever `all` is: a sort for each
/// type is some kB of program.
pub(super) fn sorted<T>(all: Vec<T>, key: impl Fn(&T) -> usize) -> Vec<T> {
    let mut order: Vec<(usize, usize)> = all.iter().map(key).enumerate().map(|(at, key)| (key, at)).collect();
    order.sort_unstable();
    let mut all: Vec<Option<T>> = all.into_iter().map(Some).collect();
    order.into_iter().filter_map(|(_, at)| all.get_mut(at)?.take()).collect()
}
