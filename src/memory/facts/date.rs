//! A time as Go writes it in JSON, RFC 3339: `2026-08-05T10:20:30.123456789+02:00`.

/// Seconds since 1970; `None`: it is none, or before that.
pub(super) fn unix_seconds(text: &[u8]) -> Option<u64> {
    let number = |at: usize, len: usize| {
        let digits = text.get(at..at + len)?;
        digits.iter().try_fold(0_i64, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let fraction = text.get(19..)?.iter().take_while(|byte| matches!(byte, b'.' | b'0'..=b'9')).count();
    let zone = 19 + fraction;
    let offset = match text.get(zone)? {
        b'Z' | b'z' => 0,
        sign @ (b'+' | b'-') => {
            let seconds = number(zone + 1, 2)? * 3600 + number(zone + 4, 2)? * 60;
            if *sign == b'+' { seconds } else { -seconds }
        }
        _ => return None,
    };
    // Days from civil, Howard Hinnant: a year begins in March, so that a leap day is its last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second - offset).ok()
}
