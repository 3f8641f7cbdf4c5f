//! The box's time zone, out of its TZif file (RFC 9636) and the POSIX rule at its end. libc's `localtime` is out of reach:
//! calling it is unsafe, and it reads the environment behind one's back.

pub(super) mod local;

/// Where the system keeps its zones.
const ZONES: &str = "/usr/share/zoneinfo/";
/// The box's own.
const LOCALTIME: &str = "/etc/localtime";
/// Seconds a day.
const DAY: i64 = 86_400;

/// When which offset holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Before the first change: seconds east of UTC.
    first: i64,
    /// From when on, in seconds since 1970, which offset; ascending.
    changes: Vec<(i64, i64)>,
    /// After the last change.
    rule: Option<Rule>,
}

/// `CET-1CEST,M3.5.0,M10.5.0/3`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// Standard time: seconds east of UTC.
    standard: i64,
    /// Summer time: its offset, its first second and its last by the clock that rules before it.
    summer: Option<(i64, Yearly, Yearly)>,
}

/// One second of each year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Yearly {
    day: Day,
    /// Seconds after its midnight; may be on another day.
    time: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Day {
    /// `J60`: 1 to 365, the 29th of February is never counted.
    Julian(i64),
    /// `59`: 0 to 365.
    Zero(i64),
    /// `M3.5.0`: month, week (5 is the last), weekday (0 is Sunday).
    Month(i64, i64, i64),
}

/// That of `TZ`, else of `/etc/localtime`; UTC where nothing of the kind can be read.
pub(super) fn of_this_box(tz: Option<&str>, read: impl Fn(&str) -> Option<Vec<u8>>) -> Zone {
    let Some(tz) = tz else { return read(LOCALTIME).and_then(|file| tzif(&file)).unwrap_or_default() };
    let named = tz.strip_prefix(':').unwrap_or(tz);
    let path = if named.starts_with('/') { named.to_owned() } else { format!("{ZONES}{named}") };
    let file = if named.is_empty() { None } else { read(&path) };
    let by_rule = || rule(named.as_bytes()).map(|rule| Zone { rule: Some(rule), ..Zone::default() });
    file.and_then(|file| tzif(&file)).or_else(by_rule).unwrap_or_default()
}

impl Zone {
    /// Minutes after local midnight, `at` so many seconds since 1970.
    pub(super) fn minute(&self, at: i64) -> u16 {
        let local = at.saturating_add(self.offset(at));
        u16::try_from(local.rem_euclid(DAY) / 60).unwrap_or(0)
    }

    fn offset(&self, at: i64) -> i64 {
        let passed = self.changes.partition_point(|(from, _)| *from <= at);
        match &self.rule {
            Some(rule) if passed == self.changes.len() => rule.offset(at),
            _ => {
                passed.checked_sub(1).and_then(|last| self.changes.get(last)).map_or(self.first, |(_, o)| *o)
            }
        }
    }
}

impl Rule {
    fn offset(&self, at: i64) -> i64 {
        let Some((summer, from, until)) = self.summer else { return self.standard };
        let year = year_of((at + self.standard).div_euclid(DAY));
        let (from, until) = (from.in_year(year) - self.standard, until.in_year(year) - summer);
        let is_summer =
            if from <= until { (from..until).contains(&at) } else { !(until..from).contains(&at) };
        if is_summer { summer } else { self.standard }
    }
}

impl Yearly {
    /// In seconds of local time since 1970.
    fn in_year(self, year: i64) -> i64 {
        let first = day_of(year, 1);
        let leap = day_of(year + 1, 1) - first == 366;
        let day = match self.day {
            Day::Zero(day) => first + day,
            Day::Julian(day) => first + day - 1 + i64::from(leap && day >= 60),
            Day::Month(month, week, weekday) => {
                let begin = day_of(year, month);
                let end = if month == 12 { day_of(year + 1, 1) } else { day_of(year, month + 1) };
                // 1970 began on a Thursday.
                let day = begin + (weekday - (begin + 4)).rem_euclid(7) + 7 * (week - 1);
                if day < end { day } else { day - 7 }
            }
        };
        day * DAY + self.time
    }
}

/// The first of a month, in days since 1970 (Howard Hinnant's `days_from_civil`).
fn day_of(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5;
    year.div_euclid(400) * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn year_of(day: i64) -> i64 {
    // 400 years have 146,097 days: at most one too early, or one too late.
    let near = 1970 + (day * 400).div_euclid(146_097);
    (near - 1..=near + 1).rfind(|year| day_of(*year, 1) <= day).unwrap_or(near)
}

/// Reads a TZif file of any version.
fn tzif(file: &[u8]) -> Option<Zone> {
    let (zone, rest) = block(file, 4)?;
    if file.get(4)? < &b'2' {
        return Some(zone);
    }
    let (zone, rest) = block(rest, 8)?;
    let footer = rest.strip_prefix(b"\n")?;
    let end = footer.iter().position(|byte| *byte == b'\n')?;
    Some(Zone { rule: rule(footer.get(..end)?), ..zone })
}

/// One header and its data, with times of so many bytes; and what comes after.
fn block(bytes: &[u8], width: usize) -> Option<(Zone, &[u8])> {
    let mut rest = bytes.strip_prefix(b"TZif")?.get(16..)?;
    let mut take = |len: usize| {
        let (taken, after) = rest.split_at_checked(len)?;
        rest = after;
        Some(taken)
    };
    let mut counts = [0_usize; 6];
    for count in &mut counts {
        *count = usize::try_from(signed(take(4)?)).ok()?;
    }
    let [is_ut, is_std, leaps, times, types, chars] = counts;
    let from = take(times.checked_mul(width)?)?;
    let which = take(times)?;
    let offsets = take(types.checked_mul(6)?)?;
    take(chars.checked_add(leaps.checked_mul(width + 4)?)?)?;
    take(is_std.checked_add(is_ut)?)?;
    let offset = |kind: usize| offsets.chunks_exact(6).nth(kind)?.get(..4).map(signed);
    let first = offset(0)?;
    let pairs = from.chunks_exact(width).zip(which);
    let changes = pairs.map(|(from, kind)| Some((signed(from), offset(usize::from(*kind))?)));
    Some((Zone { first, changes: changes.collect::<Option<_>>()?, rule: None }, rest))
}

/// Big-endian, of four or eight bytes.
fn signed(bytes: &[u8]) -> i64 {
    let negative = bytes.first().is_some_and(|byte| *byte >= 0x80);
    bytes.iter().fold(if negative { -1 } else { 0 }, |value, byte| value << 8 | i64::from(*byte))
}

/// Reads a POSIX `TZ` rule.
fn rule(text: &[u8]) -> Option<Rule> {
    let mut at = text;
    name(&mut at)?;
    let standard = -time(&mut at)?;
    if at.is_empty() {
        return Some(Rule { standard, summer: None });
    }
    name(&mut at)?;
    let summer = match at.first() {
        None | Some(b',') => standard + 3600,
        Some(_) => -time(&mut at)?,
    };
    if at.is_empty() {
        // POSIX leaves the days open then; these are everyone's choice.
        at = b",M3.2.0,M11.1.0";
    }
    let (from, until) = (yearly(&mut at)?, yearly(&mut at)?);
    at.is_empty().then_some(Rule { standard, summer: Some((summer, from, until)) })
}

/// `CET`, `<+0330>`.
fn name(at: &mut &[u8]) -> Option<()> {
    let quoted = at.first() == Some(&b'<');
    let end = if quoted {
        at.iter().position(|byte| *byte == b'>')? + 1
    } else {
        at.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(at.len())
    };
    *at = at.get(end..)?;
    (end >= 3).then_some(())
}

/// `-3`, `+5:30`, `167:00:01`, in seconds.
fn time(at: &mut &[u8]) -> Option<i64> {
    let negative = at.first() == Some(&b'-');
    if let Some(b'-' | b'+') = at.first() {
        *at = at.get(1..)?;
    }
    let mut seconds = number(at)? * 3600;
    for unit in [60, 1] {
        if let Some(after) = at.strip_prefix(b":") {
            *at = after;
            seconds += number(at)? * unit;
        }
    }
    Some(if negative { -seconds } else { seconds })
}

/// At most three digits.
fn number(at: &mut &[u8]) -> Option<i64> {
    let digits = at.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, after) = at.split_at_checked(digits).filter(|_| (1..=3).contains(&digits))?;
    *at = after;
    Some(number.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
}

/// `,M3.5.0/2`.
fn yearly(at: &mut &[u8]) -> Option<Yearly> {
    *at = at.strip_prefix(b",")?;
    let day = if let Some(after) = at.strip_prefix(b"M") {
        *at = after;
        let month = number(at)?;
        *at = at.strip_prefix(b".")?;
        let week = number(at)?;
        *at = at.strip_prefix(b".")?;
        let weekday = number(at)?;
        let sound = (1..=12).contains(&month) && (1..=5).contains(&week) && weekday <= 6;
        sound.then_some(Day::Month(month, week, weekday))?
    } else if let Some(after) = at.strip_prefix(b"J") {
        *at = after;
        Day::Julian(number(at)?)
    } else {
        Day::Zero(number(at)?)
    };
    let time = match at.strip_prefix(b"/") {
        Some(after) => {
            *at = after;
            time(at)?
        }
        None => 7200,
    };
    Some(Yearly { day, time })
}

#[cfg(test)]
#[path = "zone_tests.rs"]
mod tests;
