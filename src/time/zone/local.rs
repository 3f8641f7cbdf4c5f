//! A moment as the box's people read it: its day and minute, when a time of day last was, and its text.

use std::fmt;
use std::time::Duration;

use super::{DAY, Zone, day_of, year_of};

/// A moment by a time zone.
#[derive(Clone, Copy, Debug)]
pub struct Local<'a> {
    zone: &'a Zone,
    /// Seconds since 1970.
    utc: i64,
    /// The same by the zone's clock.
    local: i64,
}

impl<'a> Local<'a> {
    /// So many seconds since 1970.
    #[must_use]
    pub fn new(zone: &'a Zone, utc: i64) -> Self {
        Local { zone, utc, local: utc.saturating_add(zone.offset(utc)) }
    }

    /// The day, in days since 1970 by the zone's clock.
    #[must_use]
    pub const fn day(&self) -> i64 {
        self.local.div_euclid(DAY)
    }

    /// Seconds after midnight.
    #[must_use]
    pub fn second(&self) -> u32 {
        u32::try_from(self.local.rem_euclid(DAY)).unwrap_or(0)
    }

    /// Minutes after midnight.
    #[must_use]
    pub fn minute(&self) -> u16 {
        self.zone.minute(self.utc)
    }

    /// So long before it.
    #[must_use]
    pub fn before(self, ago: Duration) -> Self {
        let ago = i64::try_from(ago.as_secs()).unwrap_or(i64::MAX);
        Local::new(self.zone, self.utc.saturating_sub(ago))
    }

    /// How long ago the clock showed `minute` of this day, or of the day before; that it last was, if `day` is `None`.
    /// `None`: that is yet to come. What summer time leaves out is its first minute; of what it repeats, the first one.
    #[must_use]
    pub fn since(self, day: Option<i64>, minute: u16) -> Option<Duration> {
        let ago = |day: i64| {
            let utc = self.zone.utc(day.checked_mul(DAY)?.checked_add(i64::from(minute) * 60)?);
            u64::try_from(self.utc - utc).ok().map(Duration::from_secs)
        };
        match day {
            Some(day) => ago(day),
            None => ago(self.day()).or_else(|| ago(self.day() - 1)),
        }
    }
}

/// `2026-12-01 07:00`.
impl fmt::Display for Local<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (day, minute) = (self.day(), self.minute());
        let year = year_of(day);
        let month = (1..=12).rfind(|month| day_of(year, *month) <= day).unwrap_or(1);
        let of_month = day - day_of(year, month) + 1;
        write!(f, "{year:04}-{month:02}-{of_month:02} {:02}:{:02}", minute / 60, minute % 60)
    }
}

impl Zone {
    /// When its clock first showed, or first showed more than, `local`: seconds since 1970 by each.
    fn utc(&self, local: i64) -> i64 {
        // No zone changes twice within two days by more than a day.
        let (before, after) = (self.offset(local - DAY), self.offset(local + DAY));
        let (early, late) = (local - before.max(after), local - before.min(after));
        if self.offset(early) == local - early {
            early
        } else if self.offset(late) == local - late {
            late
        } else {
            // It is left out: the change itself, to the second.
            let mut bounds = (early, late);
            while bounds.1 - bounds.0 > 1 {
                let middle = bounds.0 + (bounds.1 - bounds.0) / 2;
                if middle + self.offset(middle) < local {
                    bounds.0 = middle;
                } else {
                    bounds.1 = middle;
                }
            }
            bounds.1
        }
    }
}

/// A date in days since 1970; `None` for one that no calendar has.
#[must_use]
pub fn day_number(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let next = if month == 12 { day_of(year + 1, 1) } else { day_of(year, month + 1) };
    let first = day_of(year, month);
    (day >= 1 && first + day - 1 < next).then_some(first + day - 1)
}

#[cfg(test)]
mod tests {
    use super::super::of_this_box;
    use super::*;

    fn zone(rule: &str) -> Zone {
        of_this_box(Some(rule), |_| None)
    }

    fn at(zone: &Zone, date: (i64, i64, i64), hour: i64, minute: i64) -> Local<'_> {
        let day = day_number(date.0, date.1, date.2).unwrap();
        Local::new(zone, day * DAY + hour * 3600 + minute * 60)
    }

    const HOUR: u64 = 3600;

    #[test]
    fn a_moment_reads_as_the_boxs_clock_shows_it() {
        let zone = zone("CET-1CEST,M3.5.0,M10.5.0/3");
        for (date, hour, text) in [
            ((2026, 12, 1), 6, "2026-12-01 07:00"),
            ((2026, 7, 1), 5, "2026-07-01 07:00"),
            ((2026, 12, 31), 23, "2027-01-01 00:00"),
            ((2028, 2, 28), 23, "2028-02-29 00:00"),
        ] {
            let local = at(&zone, date, hour, 0);
            assert_eq!(local.to_string(), text);
            assert_eq!(i64::from(local.minute()) * 60, i64::from(local.second()));
        }
        let now = at(&zone, (2026, 12, 1), 6, 30);
        assert_eq!(now.before(Duration::from_secs(8 * HOUR)).to_string(), "2026-11-30 23:30");
    }

    #[test]
    fn a_time_of_day_is_the_last_one_and_a_date_is_that_one() {
        let zone = zone("CET-1CEST,M3.5.0,M10.5.0/3");
        let now = at(&zone, (2026, 12, 1), 6, 30);
        let since = |day, minute| now.since(day, minute).map(|ago| ago.as_secs() / 60);
        assert_eq!(since(None, 22 * 60), Some(9 * 60 + 30));
        assert_eq!(since(None, 7 * 60), Some(30));
        assert_eq!(since(None, 7 * 60 + 30), Some(0), "now");
        assert_eq!(since(None, 7 * 60 + 31), Some(24 * 60 - 1), "yesterday's");
        assert_eq!(since(day_number(2026, 11, 30), 22 * 60), Some(9 * 60 + 30));
        assert_eq!(since(day_number(2026, 12, 1), 22 * 60), None, "to come");
    }

    #[test]
    fn summer_time_moves_a_night_by_its_hour() {
        let zone = zone("CET-1CEST,M3.5.0,M10.5.0/3");
        // 2026-03-29 is 23 hours long: 02:00 is 03:00.
        let spring = at(&zone, (2026, 3, 29), 5, 0);
        assert_eq!(spring.to_string(), "2026-03-29 07:00");
        assert_eq!(spring.since(None, 22 * 60), Some(Duration::from_secs(8 * HOUR)));
        assert_eq!(spring.since(None, 150), Some(Duration::from_secs(4 * HOUR)), "02:30 was never there");
        // 2026-10-25 has 02:30 twice.
        let autumn = at(&zone, (2026, 10, 25), 6, 0);
        assert_eq!(autumn.to_string(), "2026-10-25 07:00");
        assert_eq!(autumn.since(None, 22 * 60), Some(Duration::from_secs(10 * HOUR)));
        assert_eq!(autumn.since(None, 150), Some(Duration::from_secs(5 * HOUR + HOUR / 2)), "the first one");
    }

    #[test]
    fn dates_that_no_calendar_has_are_none() {
        for (year, month, day) in [
            (2026, 2, 29),
            (2026, 0, 1),
            (2026, 13, 1),
            (2026, 4, 31),
            (2026, 1, 0),
            (1969, 1, 1),
            (10_000, 1, 1),
        ] {
            assert_eq!(day_number(year, month, day), None, "{year}-{month}-{day}");
        }
        assert_eq!(day_number(1970, 1, 1), Some(0));
        assert_eq!(day_number(2028, 2, 29), Some(21_243));
    }
}
