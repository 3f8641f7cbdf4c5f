//! Since when `edgeward status --since` is asked: `22:00`, `8h`, `2026-12-01T22:00`.
//!
//! Pure: the box's clock is passed in.

use std::time::Duration;

use crate::config::value::parse_duration;
use crate::time::{Local, day_number};

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So long ago.
    Ago(Duration),
    /// When the box's clock last showed this: minutes after midnight.
    At(u16),
    /// On this day, in days since 1970 by the box's clock.
    On(i64, u16),
}

impl Since {
    /// Reads one.
    #[must_use]
    pub fn read(text: &str) -> Option<Since> {
        if let Some((date, time)) = text.split_once('T') {
            let mut parts = date.splitn(3, '-');
            let [year, month, day] = [parts.next()?, parts.next()?, parts.next()?];
            let day = day_number(number(year, 4, 4)?, number(month, 2, 2)?, number(day, 2, 2)?)?;
            return Some(Since::On(day, minute(time)?));
        }
        match minute(text) {
            Some(minute) => Some(Since::At(minute)),
            None => parse_duration(text).map(Since::Ago),
        }
    }

    /// How long ago that is. `local`: this moment by the box's clock, where that can be right.
    ///
    /// # Errors
    /// It is yet to come; or there is no clock to tell.
    pub fn ago(self, local: Option<Local<'_>>) -> Result<Duration, String> {
        let (day, minute) = match self {
            Since::Ago(ago) => return Ok(ago),
            Since::At(minute) => (None, minute),
            Since::On(day, minute) => (Some(day), minute),
        };
        let local = local.ok_or("this box's clock is wrong; ask for so long ago: --since 8h")?;
        let ago = local.since(day, minute);
        ago.ok_or_else(|| format!("that is yet to come: it is {local} on this box"))
    }
}

/// `7:00`, `22:00`.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute) = (number(hour, 1, 2)?, number(minute, 2, 2)?);
    let both = (0..24).contains(&hour) && (0..60).contains(&minute);
    u16::try_from(hour * 60 + minute).ok().filter(|_| both)
}

/// Of so many digits.
fn number(text: &str, least: usize, most: usize) -> Option<i64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && (least..=most).contains(&text.len());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ways_to_say_since_when() {
        let day = day_number(2026, 12, 1).unwrap();
        for (text, wanted) in [
            ("22:00", Some(Since::At(1320))),
            ("7:05", Some(Since::At(425))),
            ("8h", Some(Since::Ago(Duration::from_secs(8 * 3600)))),
            ("90m", Some(Since::Ago(Duration::from_secs(5400)))),
            ("2026-12-01T22:00", Some(Since::On(day, 1320))),
            ("24:00", None),
            ("22:60", None),
            ("22", None),
            ("22:0", None),
            ("+2:00", None),
            ("2026-13-01T22:00", None),
            ("2026-12-01", None),
            ("2026-12-01T", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(Since::read(text), wanted, "{text}");
        }
    }

    #[test]
    fn without_a_clock_only_so_long_ago_is_known() {
        assert_eq!(Since::Ago(Duration::from_secs(1)).ago(None), Ok(Duration::from_secs(1)));
        assert!(Since::At(0).ago(None).is_err_and(|why| why.contains("clock is wrong")));
    }
}
