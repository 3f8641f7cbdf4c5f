//! Readers of single values: each takes one TOML value and gives the typed one, or what is wrong with it.

use std::borrow::Cow;
use std::time::Duration;

use toml::de::DeValue;

use crate::limits::{CONFIG_DURATION_MAX, KIB, MIB};

/// What is wrong with one value; the caller knows where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub what: Words,
    pub hint: Option<Words>,
}

/// Most mistakes are told in words that are in the program already: they are copied only when one is made.
pub(super) type Words = Cow<'static, str>;

impl Fault {
    pub fn new(what: impl Into<Words>, hint: impl Into<Words>) -> Fault {
        Fault { what: what.into(), hint: Some(hint.into()) }
    }

    pub fn mistyped(value: &DeValue<'_>, wanted: &str, example: &str) -> Fault {
        Fault::new(format!("must be {wanted}, not {}", type_name(value)), format!("for example {example}"))
    }
}

/// With its article, for a sentence.
pub(super) fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

pub(super) fn text(value: &DeValue<'_>) -> Result<String, Fault> {
    match value {
        DeValue::String(text) if text.trim().is_empty() => {
            Err(Fault::new("is empty", "give it a value or leave the key out"))
        }
        DeValue::String(text) => Ok(text.to_string()),
        _ => Err(Fault::new(
            format!("must be a string, not {}", type_name(value)),
            "write it in double quotes: \"…\"",
        )),
    }
}

pub(super) fn flag(value: &DeValue<'_>) -> Result<bool, Fault> {
    match value {
        DeValue::Boolean(flag) => Ok(*flag),
        _ => Err(Fault::mistyped(value, "true or false", "true")),
    }
}

/// A count between `min` and `max`, both allowed.
pub(super) fn count(value: &DeValue<'_>, min: u64, max: u64) -> Result<u64, Fault> {
    let DeValue::Integer(number) = value else {
        return Err(Fault::mistyped(value, "a whole number", &min.max(1).to_string()));
    };
    match u64::from_str_radix(number.as_str(), number.radix()) {
        Ok(count) if (min..=max).contains(&count) => Ok(count),
        _ => Err(Fault::new(
            format!("{number} is not between {min} and {max}"),
            format!("write a number from {min} to {max}"),
        )),
    }
}

/// A number of bytes, between `min` and `max`: `"64KiB"`, `"32MiB"`, `"1GiB"`, `"512B"` or a plain number.
pub(super) fn bytes(value: &DeValue<'_>, min: usize, max: usize) -> Result<usize, Fault> {
    let size = match value {
        DeValue::Integer(number) => usize::from_str_radix(number.as_str(), number.radix()).ok(),
        DeValue::String(text) => parse_bytes(text),
        _ => return Err(Fault::mistyped(value, "a size", "\"64KiB\"")),
    };
    match size {
        Some(size) if (min..=max).contains(&size) => Ok(size),
        Some(size) => Err(Fault::new(
            format!("{} is not between {} and {}", show_bytes(size), show_bytes(min), show_bytes(max)),
            format!("write a size from \"{}\" to \"{}\"", show_bytes(min), show_bytes(max)),
        )),
        None => Err(Fault::new(
            "is not a size",
            "write a whole number and a unit: \"512B\", \"64KiB\", \"32MiB\", \"1GiB\"; or a number of bytes",
        )),
    }
}

fn parse_bytes(text: &str) -> Option<usize> {
    let (number, unit) = split_unit(text);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "b" => 1,
        "kib" => KIB,
        "mib" => MIB,
        "gib" => 1024 * MIB,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

/// As the config writes it, in the largest unit that divides it.
pub fn show_bytes(size: usize) -> String {
    for (unit, name) in [(1024 * MIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")] {
        if size >= unit && size.is_multiple_of(unit) {
            return format!("{}{name}", size / unit);
        }
    }
    format!("{size}B")
}

/// A duration up to [`CONFIG_DURATION_MAX`], zero only where `zero` says so: `"1500ms"`, `"20s"`, `"5m"`, `"1h"`.
pub(super) fn duration(value: &DeValue<'_>, zero: bool) -> Result<Duration, Fault> {
    let DeValue::String(text) = value else {
        let example = match value {
            DeValue::Integer(number) => format!("\"{number}s\""),
            _ => "\"20s\"".to_owned(),
        };
        return Err(Fault::mistyped(value, "a duration with its unit", &example));
    };
    match parse_duration(text) {
        Some(Duration::ZERO) if !zero => Err(Fault::new(
            "is zero, so that nothing could ever be in time",
            "write how long to wait, or leave the key out for its default",
        )),
        Some(duration) if duration <= CONFIG_DURATION_MAX => Ok(duration),
        Some(_) => Err(Fault::new("is longer than a day", "write at most \"24h\"")),
        None => Err(Fault::new(
            format!("{} is not a duration", shown(text)),
            "write a whole number and one unit: \"1500ms\", \"20s\", \"5m\", \"1h\"",
        )),
    }
}

/// A whole number and its unit: `1500ms`, `20s`, `5m`, `1h`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        "h" => Some(Duration::from_secs(number.checked_mul(3600)?)),
        _ => None,
    }
}

/// As the config writes it.
pub(super) fn show_duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_millis())
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// One of a few words.
pub(super) fn choice<T: Copy>(value: &DeValue<'_>, choices: &[(&str, T)]) -> Result<T, Fault> {
    if let DeValue::String(text) = value
        && let Some((_, found)) = choices.iter().find(|(name, _)| name == text)
    {
        return Ok(*found);
    }
    let mut names = choices.iter().map(|(name, _)| *name);
    Err(no_choice(value, &mut names))
}

fn no_choice(value: &DeValue<'_>, names: &mut dyn Iterator<Item = &str>) -> Fault {
    let names: Vec<&str> = names.collect();
    let list = format!("\"{}\"", names.join("\", \""));
    let DeValue::String(text) = value else {
        return Fault::new(
            format!("must be a string, not {}", type_name(value)),
            format!("write one of {list}"),
        );
    };
    let hint = match nearest(text, names) {
        Some(name) => format!("did you mean \"{name}\"? There are {list}"),
        None => format!("write one of {list}"),
    };
    Fault::new(format!("{} is not a word that it knows", shown(text)), hint)
}

/// `text` quoted for a message: control characters escaped, cut to a length that fits a line.
pub(super) fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    if text.chars().count() > SHOWN_CHARS {
        let cut: String = text.chars().take(SHOWN_CHARS).collect();
        return format!("{:?}", format!("{cut}…"));
    }
    format!("{text:?}")
}

/// The name among `names` that `text` most likely means, if any is near.
pub(crate) fn nearest<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    nearest_of(text, &mut names.into_iter())
}

fn nearest_of<'n>(text: &str, names: &mut dyn Iterator<Item = &'n str>) -> Option<&'n str> {
    let text = text.to_lowercase();
    names
        .map(|name| (distance(&text, name), name))
        .filter(|(distance, name)| *distance <= (name.chars().count() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Damerau-Levenshtein distance: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    // A key far longer than any that exists needs no exact answer.
    const LENGTH_MAX: usize = 64;
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len() > LENGTH_MAX || b.len() > LENGTH_MAX {
        return usize::MAX;
    }
    let width = b.len() + 1;
    let mut cost = vec![0usize; (a.len() + 1) * width];
    for (j, cell) in cost.iter_mut().take(width).enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        cost[i * width] = i;
        for j in 1..=b.len() {
            let replace = cost[(i - 1) * width + j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(cost[(i - 1) * width + j] + 1).min(cost[i * width + j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(cost[(i - 2) * width + j - 2] + 1);
            }
            cost[i * width + j] = best;
        }
    }
    cost[a.len() * width + b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, wanted) in [
            ("1500ms", Some(1500)),
            ("20s", Some(20_000)),
            ("5m", Some(300_000)),
            ("1h", Some(3_600_000)),
            ("2 s", Some(2000)),
            ("", None),
            ("s", None),
            ("5", None),
            ("1.5s", None),
            ("-1s", None),
            ("1d", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(parse_duration(text), wanted.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, wanted) in [
            ("512B", Some(512)),
            ("64KiB", Some(64 << 10)),
            ("64kib", Some(64 << 10)),
            ("32 MiB", Some(32 << 20)),
            ("1GiB", Some(1 << 30)),
            ("64KB", None),
            ("64", None),
            ("KiB", None),
            ("99999999999999999999KiB", None),
            ("18446744073709551615GiB", None),
        ] {
            assert_eq!(parse_bytes(text), wanted, "{text}");
        }
        for size in [1, 1023, 1024, 1025, 64 << 10, 32 << 20, 3 << 30] {
            assert_eq!(parse_bytes(&show_bytes(size)), Some(size));
        }
    }

    #[test]
    fn nearest_finds_a_slip_and_no_stranger() {
        let names = ["listen", "limits", "max_body", "url"];
        for (text, wanted) in [
            ("lisen", Some("listen")),
            ("listne", Some("listen")),
            ("LISTEN", Some("listen")),
            ("maxbody", Some("max_body")),
            ("ulr", Some("url")),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, names), wanted, "{text}");
        }
    }
}
