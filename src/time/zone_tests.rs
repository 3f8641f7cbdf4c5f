//! Zones against what CPython's `zoneinfo` says of the same moments.

use proptest::prelude::*;

use super::*;

fn of_rule(text: &str) -> Zone {
    of_this_box(Some(text), |_| None)
}

/// The last minute before each change in 2040, and the first after it, with minutes after midnight.
#[test]
fn rules_change_when_they_say() {
    for (text, moments) in [
        (
            "CET-1CEST,M3.5.0,M10.5.0/3",
            [(2216249940, 119), (2216250000, 180), (2234998740, 179), (2234998800, 120)],
        ),
        (
            "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
            [(2216818740, 119), (2216818800, 90), (2233150140, 119), (2233150200, 150)],
        ),
        (
            "<-02>2<-01>,M3.5.0/-1,M10.5.0/0",
            [(2216249940, 1379), (2216250000, 0), (2234998740, 1439), (2234998800, 1380)],
        ),
        (
            "NZST-12NZDT,M9.5.0,M4.1.0/3",
            [(2216815140, 179), (2216815200, 120), (2232539940, 119), (2232540000, 180)],
        ),
        ("EST5EDT", [(2215061940, 119), (2215062000, 180), (2235621540, 119), (2235621600, 60)]),
        (
            "IST-1GMT0,M10.5.0,M3.5.0/1",
            [(2216249940, 59), (2216250000, 120), (2234998740, 119), (2234998800, 60)],
        ),
    ] {
        for (at, minute) in moments {
            assert_eq!(of_rule(text).minute(at), minute, "{text} at {at}");
        }
    }
}

#[test]
fn days_are_counted_with_and_without_the_29th_of_february() {
    let day = |day, year| Yearly { day, time: 0 }.in_year(year) / DAY;
    assert_eq!(day(Day::Julian(60), 2024), day_of(2024, 3));
    assert_eq!(day(Day::Julian(60), 2023), day_of(2023, 3));
    assert_eq!(day(Day::Julian(59), 2024), day_of(2024, 3) - 2);
    assert_eq!(day(Day::Zero(59), 2024), day_of(2024, 3) - 1);
    assert_eq!(day(Day::Zero(0), 1970), 0);
    assert_eq!(day(Day::Month(2, 5, 4), 2024), day_of(2024, 3) - 1, "the 29th was a Thursday");
    assert_eq!(day(Day::Month(12, 5, 0), 2023), day_of(2024, 1) - 1, "New Year's Eve was a Sunday");
}

/// A file as `zic` writes it: a block of four bytes a time for old readers, one of eight, the rule.
fn file(version: u8, changes: &[(i64, u8)], offsets: &[i32], rule: &str) -> Vec<u8> {
    let mut file = Vec::new();
    for width in [4, 8] {
        file.extend_from_slice(b"TZif");
        file.push(version);
        file.extend_from_slice(&[0; 15]);
        for count in [0, 0, 0, changes.len(), offsets.len(), 4] {
            file.extend_from_slice(&u32::try_from(count).unwrap().to_be_bytes());
        }
        for (at, _) in changes {
            file.extend_from_slice(&at.to_be_bytes()[8 - width..]);
        }
        file.extend(changes.iter().map(|(_, kind)| kind));
        for offset in offsets {
            file.extend_from_slice(&offset.to_be_bytes());
            file.extend_from_slice(&[0, 0]);
        }
        file.extend_from_slice(b"ABC\0");
        if version == 0 {
            return file;
        }
    }
    file.extend_from_slice(format!("\n{rule}\n").as_bytes());
    file
}

#[test]
fn a_file_has_its_past_and_its_rule() {
    let changes = [(-1000, 1), (1000, 2), (2_000_000_000, 1)];
    let hours = [5400, -3600, 7200];
    for (version, rule, after) in [(0, "", -3600), (b'2', "", -3600), (b'3', "<+05>-5", 5 * 3600)] {
        let zone = tzif(&file(version, &changes, &hours, rule)).unwrap_or_default();
        let offsets = [-2000, -1000, 999, 1000, 1_999_999_999, 2_000_000_000].map(|at| zone.offset(at));
        let want = [5400, -3600, -3600, 7200, 7200, after];
        // Without a rule the last change holds on.
        assert_eq!(offsets, want, "{version}");
    }
}

#[test]
fn what_cannot_be_read_is_utc() {
    let berlin = || file(b'2', &[], &[3600], "CET-1CEST,M3.5.0,M10.5.0/3");
    let found = |tz: Option<&str>| {
        let read = |path: &str| match path {
            "/etc/localtime" | "/x" | "/usr/share/zoneinfo/Europe/Berlin" => Some(berlin()),
            _ => None,
        };
        of_this_box(tz, read).minute(0)
    };
    for (tz, minute) in [
        (None, 60),
        (Some("Europe/Berlin"), 60),
        (Some(":Europe/Berlin"), 60),
        (Some(":/x"), 60),
        (Some("/y"), 0),
        (Some(""), 0),
        (Some("Nowhere/Else"), 0),
        (Some("UTC"), 0),
        (Some("<+03>-3"), 180),
        (Some("EST5"), 1140),
    ] {
        assert_eq!(found(tz), minute, "{tz:?}");
    }
    assert_eq!(of_this_box(None, |_| None), Zone::default());
    for bad in ["A5", "CET", "CET-1CEST,M13.1.0,M1.1.0", "CET-1CEST,M3.5.0", "CET-1CEST,J1,J2x", "CET-1CEST,"]
    {
        assert_eq!(rule(bad.as_bytes()), None, "{bad}");
    }
}

/// Where the system has its zones; expectations by CPython's `zoneinfo`, with tzdata 2026.
#[test]
fn the_systems_own_files_are_read() {
    for (name, at, minute) in [
        ("Europe/Berlin", -622584840, 286),
        ("Europe/Berlin", 932097900, 365),
        ("America/New_York", 922999860, 951),
        ("America/New_York", 2871457500, 365),
        ("Asia/Kolkata", 936767700, 645),
        ("America/Sao_Paulo", 931979880, 978),
        ("Africa/Casablanca", 944887380, 283),
        ("Australia/Lord_Howe", 936698760, 1236),
        ("Europe/Dublin", 918690180, 1423),
        ("Pacific/Auckland", 931316580, 903),
    ] {
        let Ok(file) = std::fs::read(format!("{ZONES}{name}")) else { continue };
        assert_eq!(tzif(&file).map(|zone| zone.minute(at)), Some(minute), "{name} at {at}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic_and_every_minute_is_one(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        cut in 0_usize..200,
        text in "[A-Z<>+,./:JM0-9-]{0,30}",
        at in any::<i32>(),
    ) {
        let mut bytes = file(b'2', &[(0, 1), (10, 0)], &[0, 3600], &text);
        for (at, byte) in noise.iter().enumerate().take(cut) {
            bytes[(at * 7 + 20) % 120] = *byte;
        }
        bytes.truncate(400 - cut);
        for zone in [tzif(&bytes), tzif(&noise), Some(of_rule(&text))].into_iter().flatten() {
            prop_assert!(zone.minute(i64::from(at)) < 1440);
        }
    }
}
