//! Readers of percentages, money and times of the day, and how each is written.

use std::fmt;
use std::time::Duration;

use toml::de::DeValue;

use super::value::{Fault, duration, show_duration, shown};
use super::{Hours, Micros, Permille};

/// Minutes of a day.
const DAY: u16 = 24 * 60;
/// Digits behind the point that [`Micros`] can hold.
const MICRO_DIGITS: usize = 6;

/// A share between `min` and `max`, both allowed: `"10%"`, `"2.5%"`.
pub(super) fn share(value: &DeValue<'_>, min: Permille, max: Permille) -> Result<Permille, Fault> {
    let DeValue::String(text) = value else {
        let example = match value {
            DeValue::Integer(number) => format!("\"{number}%\""),
            _ => "\"10%\"".to_owned(),
        };
        return Err(Fault::mistyped(value, "a percentage with its sign", &example));
    };
    match parse_share(text) {
        Some(share) if (min..=max).contains(&share) => Ok(share),
        Some(share) => Err(Fault::new(
            format!("{share} is not between {min} and {max}"),
            format!("write a percentage from \"{min}\" to \"{max}\""),
        )),
        None => Err(Fault::new(
            format!("{} is not a percentage", shown(text)),
            "write a number with one digit behind the point at most, and %: \"10%\", \"2.5%\"",
        )),
    }
}

/// A percentage with one digit behind the point at most: `10%`, `2.5%`.
pub(crate) fn parse_share(text: &str) -> Option<Permille> {
    let number = text.strip_suffix('%')?.trim_end();
    u16::try_from(decimal(number, 1)?).ok().map(Permille)
}

impl fmt::Display for Permille {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{}%", self.0 / 10),
            tenth => write!(f, "{}.{tenth}%", self.0 / 10),
        }
    }
}

/// Money between `min` and `max`, both allowed, exactly as it is written: `5`, `5.00` or `"5.00"`.
pub(super) fn money(value: &DeValue<'_>, min: Micros, max: Micros) -> Result<Micros, Fault> {
    let text = match value {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
        DeValue::Float(number) => number.as_str(),
        DeValue::String(text) => text,
        _ => return Err(Fault::mistyped(value, "an amount of money", "5.00")),
    };
    match decimal(text, MICRO_DIGITS) {
        Some(money) if (min..=max).contains(&money) => Ok(money),
        Some(0) => Err(Fault::new(
            "is zero, so that nothing could ever be sent",
            "write what may be spent, or leave the target out",
        )),
        Some(money) => Err(Fault::new(
            format!("{} is not between {} and {}", show_money(money), show_money(min), show_money(max)),
            format!("write an amount from {} to {}", show_money(min), show_money(max)),
        )),
        None => Err(Fault::new(
            format!("{} is not an amount of money", shown(text)),
            "write it without a currency, six digits behind the point at most: 5.00",
        )),
    }
}

/// Money as people write it, two digits behind the point at least: `5.00`, `0.075`.
#[must_use]
pub fn show_money(money: Micros) -> String {
    let part = format!("{:06}", money % 1_000_000);
    let digits = part.trim_end_matches('0').len().max(2);
    format!("{}.{}", money / 1_000_000, part.get(..digits).unwrap_or(&part))
}

/// A plain decimal number in units of 10^-`digits`. `None`: it is none, or has more digits behind the point.
fn decimal(text: &str, digits: usize) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !plain(whole) || !plain(part) {
        return None;
    }
    let part = match part.trim_end_matches('0') {
        "" => "0",
        part => part,
    };
    if part.len() > digits {
        return None;
    }
    let scale = |power: usize| u32::try_from(power).ok().and_then(|power| 10u64.checked_pow(power));
    let part = part.parse::<u64>().ok()?.checked_mul(scale(digits - part.len())?)?;
    whole.parse::<u64>().ok()?.checked_mul(scale(digits)?)?.checked_add(part)
}

/// A part of the day: `"22:00-06:00"`.
pub(super) fn hours(value: &DeValue<'_>) -> Result<Hours, Fault> {
    let DeValue::String(text) = value else {
        return Err(Fault::mistyped(value, "a part of the day", "\"22:00-06:00\""));
    };
    parse_hours(text).ok_or_else(|| {
        Fault::new(
            format!("{} is not a part of the day", shown(text)),
            "write from and until, by the 24-hour clock of this box: \"22:00-06:00\"",
        )
    })
}

fn parse_hours(text: &str) -> Option<Hours> {
    let (from, to) = text.split_once('-')?;
    let (from, to) = (time_of_day(from)?, time_of_day(to)?);
    // 24:00 is the end of a day, and no beginning.
    (from < DAY).then_some(Hours { from, to: to % DAY })
}

fn time_of_day(text: &str) -> Option<u16> {
    let (hour, minute) = text.trim().split_once(':')?;
    let number = |text: &str, length: std::ops::RangeInclusive<usize>| {
        let good = length.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        good.then(|| text.parse::<u16>().ok()).flatten()
    };
    let (hour, minute) = (number(hour, 1..=2)?, number(minute, 2..=2)?);
    (minute < 60 && hour * 60 + minute <= DAY).then_some(hour * 60 + minute)
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hours { from, to } = *self;
        // As people write the end of a day.
        let to = if to == 0 { DAY } else { to };
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

impl Hours {
    fn length(self) -> u16 {
        match (self.to + DAY - self.from) % DAY {
            0 => DAY,
            length => length,
        }
    }

    /// Whether it is the whole day.
    pub(super) fn is_whole_day(self) -> bool {
        self.length() == DAY
    }

    /// Whether every minute of `other` is one of these.
    pub(super) fn cover(self, other: Hours) -> bool {
        self.is_whole_day() || (other.from + DAY - self.from) % DAY + other.length() <= self.length()
    }
}

/// A duration between `min` and `max`, both allowed.
pub(super) fn time(value: &DeValue<'_>, min: Duration, max: Duration) -> Result<Duration, Fault> {
    let time = duration(value, min.is_zero())?;
    if (min..=max).contains(&time) {
        return Ok(time);
    }
    let (min, max) = (show_duration(min), show_duration(max));
    Err(Fault::new(
        format!("{} is not between {min} and {max}", show_duration(time)),
        format!("write a duration from \"{min}\" to \"{max}\""),
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str) -> DeValue<'_> {
        DeValue::String(text.into())
    }

    #[test]
    fn percentages() {
        for (text, wanted) in [
            ("10%", Some(100)),
            ("2.5%", Some(25)),
            ("2.50%", Some(25)),
            ("0%", Some(0)),
            ("100 %", Some(1000)),
            ("0.1%", Some(1)),
            ("2.55%", None),
            ("10", None),
            ("%", None),
            (".5%", None),
            ("5.%", None),
            ("-5%", None),
            ("+5%", None),
            ("1e1%", None),
            ("10%%", None),
            ("99999999999999999999%", None),
        ] {
            assert_eq!(parse_share(text), wanted.map(Permille), "{text}");
        }
    }

    #[test]
    fn money_is_exact() {
        for (text, wanted) in [
            ("5", Some(5_000_000)),
            ("5.00", Some(5_000_000)),
            ("0.1", Some(100_000)),
            ("0.075", Some(75_000)),
            ("0.000001", Some(1)),
            ("1.10000000", Some(1_100_000)),
            ("1.2345678", None),
            ("1.0000001", None),
            ("-1", None),
            ("$5", None),
            ("5,00", None),
            ("5e3", None),
            ("inf", None),
            ("nan", None),
            (".5", None),
            ("5.", None),
            ("", None),
            ("18446744073709551615", None),
        ] {
            assert_eq!(money(&value(text), 0, u64::MAX).ok(), wanted, "{text}");
        }
        for (micros, shown) in [
            (0, "0.00"),
            (5_000_000, "5.00"),
            (25_500_000, "25.50"),
            (75_000, "0.075"),
            (1, "0.000001"),
            (100_000_000, "100.00"),
        ] {
            assert_eq!(show_money(micros), shown);
        }
    }

    #[test]
    fn parts_of_the_day() {
        let at = |from, to| Some(Hours { from, to });
        for (text, wanted) in [
            ("22:00-06:00", at(1320, 360)),
            ("6:30 - 18:00", at(390, 1080)),
            ("08:00-24:00", at(480, 0)),
            ("00:00-24:00", at(0, 0)),
            ("24:00-06:00", None),
            ("08:00-24:01", None),
            ("08:60-09:00", None),
            ("8-9", None),
            ("08:00", None),
            ("+8:00-09:00", None),
            ("08:0-09:00", None),
            ("08:00-09:00-10:00", None),
            ("99:00-99:00", None),
        ] {
            assert_eq!(parse_hours(text), wanted, "{text}");
        }
    }

    /// The slow way to say whether `hours` has `minute`.
    fn has(hours: Hours, minute: u16) -> bool {
        let Hours { from, to } = hours;
        if from < to { (from..to).contains(&minute) } else { minute >= from || minute < to }
    }

    proptest! {
        #[test]
        fn shares_are_read_as_they_are_written(share in 0u16..=1000) {
            prop_assert_eq!(parse_share(&Permille(share).to_string()), Some(Permille(share)));
        }

        #[test]
        fn money_is_read_as_it_is_written(micros in 0u64..=u64::MAX / 2) {
            let text = show_money(micros);
            prop_assert_eq!(decimal(&text, MICRO_DIGITS), Some(micros));
            prop_assert!(text.rsplit('.').next().is_some_and(|part| part.len() >= 2), "{}", text);
        }

        #[test]
        fn hours_are_read_as_they_are_written(from in 0..DAY, to in 0..DAY) {
            let hours = Hours { from, to };
            prop_assert_eq!(parse_hours(&hours.to_string()), Some(hours));
        }

        #[test]
        fn hours_cover_what_lies_in_them(a in 0..48u16, b in 0..48u16, c in 0..48u16, d in 0..48u16) {
            let (wide, narrow) = (Hours { from: a * 30, to: b * 30 }, Hours { from: c * 30, to: d * 30 });
            let slow = (0..DAY).step_by(30).all(|minute| !has(narrow, minute) || has(wide, minute));
            prop_assert_eq!(wide.cover(narrow), slow, "{} {}", wide, narrow);
        }

        #[test]
        fn no_text_makes_them_panic(text in "\\PC{0,24}|[0-9.:%+-]{0,24}") {
            let text = value(&text);
            let _ = share(&text, Permille(0), Permille(1000));
            let _ = money(&text, 0, u64::MAX);
            let _ = hours(&text);
            let _ = time(&text, Duration::ZERO, Duration::from_secs(1));
        }
    }
}
