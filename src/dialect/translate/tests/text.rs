//! Text that was cut inside a character, templates, JSON on one line, dates.

use proptest::prelude::*;

use super::super::text::{Fill, Tail, compact, fill, quote, whole};
use super::super::to_ollama::timestamp;
use super::super::view::View;

fn in_two(first: &[u8], second: &[u8]) -> (String, String) {
    let mut tail = Tail::default();
    let first = tail.push(first);
    let second = tail.push(second);
    (first, second + &tail.flush())
}

#[test]
fn half_a_character_waits_for_its_other_half() {
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(in_two(br"a\ud83d", br"\ude00b"), pair("a", "😀b"));
    assert_eq!(in_two(b"a\xF0\x9F", b"\x98\x80b"), pair("a", "😀b"));
    assert_eq!(in_two(b"\xE6", b"\xBC\xA2"), pair("", "漢"));
    // Nothing that completes it, or nothing at all.
    assert_eq!(in_two(br"a\ud83d", b"b"), pair("a", "\u{FFFD}b"));
    assert_eq!(in_two(br"a\ud83d", br"\ud83d"), pair("a", "\u{FFFD}\u{FFFD}"));
    assert_eq!(in_two(br"\ude00", b""), pair("\u{FFFD}", ""));
    assert_eq!(in_two(b"a\xF0\x9F", b"b"), pair("a", "\u{FFFD}b"));
    assert_eq!(in_two(b"a\xF0\x9F", b""), pair("a", "\u{FFFD}"));
    assert_eq!(in_two(b"\xFFa", b"\x80"), pair("\u{FFFD}a", "\u{FFFD}"));
    assert_eq!(in_two(br#"\n\t\r\b\f\"\\\/"#, br"\u00e9\u0000"), pair("\n\t\r\u{8}\u{c}\"\\/", "é\0"));
}

#[test]
fn templates_take_their_values_in_order() {
    let mut out = Vec::new();
    let values =
        [Fill::Text("a\"\u{2028}\u{85}\n$"), Fill::Number(u64::MAX), Fill::Json("[$]"), Fill::Number(0)];
    fill(&mut out, "{\"t\":$,\"n\":$,\"j\":$,\"z\":$}", &values);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\"t\":\"a\\\"\\u2028\\u0085\\n$\",\"n\":18446744073709551615,\"j\":[$],\"z\":0}"
    );
}

#[test]
fn json_becomes_one_line_and_keeps_its_numbers_and_its_order() {
    let json = "{\r\n \"z\" : [ 1.0 , 12345678901234567890123 ],\t\"a b\\\"c\\\\\" : \"x\u{2028} y\" }";
    assert_eq!(
        compact(json.as_bytes()),
        "{\"z\":[1.0,12345678901234567890123],\"a b\\\"c\\\\\":\"x\\u2028 y\"}"
    );
}

#[test]
fn dates_are_of_the_calendar() {
    for (seconds, date) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_700_000_000, "2023-11-14T22:13:20Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
        (u64::MAX, "9999-12-31T23:59:59Z"),
    ] {
        assert_eq!(timestamp(seconds), date);
    }
}

#[test]
fn a_view_finds_members_by_name_and_the_last_of_two() {
    let view = View::new(br#" {"a":1,"b":{"a":[ {"x":"\u00e9"} ]},"a":2,"n":null,"e":{ }} "#).unwrap();
    assert_eq!(view.get("a").number(), Some(2));
    let mut texts = Vec::new();
    view.get("b").get("a").each(&mut |one| texts.push(one.get("x").text()));
    assert_eq!(texts, ["é"]);
    assert!(view.get("n").is_null() && view.get("none").is_null() && view.get("a").get("x").is_null());
    assert!(!view.get("e").is_filled() && view.get("b").is_filled());
    assert!(View::new(b"{} x").is_none() && View::new(b"").is_none());
}

proptest! {
    #[test]
    fn any_text_comes_back_wherever_it_was_cut(text in any::<String>(), cut in any::<prop::sample::Index>()) {
        let mut quoted = Vec::new();
        quote(&mut quoted, &text);
        prop_assert_eq!(&serde_json::from_slice::<String>(&quoted).unwrap(), &text);
        let inside = &quoted[1..quoted.len() - 1];
        prop_assert_eq!(&whole(inside), &text);
        // Between two escapes, but inside of any character.
        let cut = cut.index(inside.len() + 1);
        if !inside[..cut].contains(&b'\\') && !inside[cut..].starts_with(b"\\") {
            let (first, second) = in_two(&inside[..cut], &inside[cut..]);
            prop_assert_eq!(first + &second, text.clone());
        }
        // By UTF-16 units, as JavaScript cuts.
        let units: Vec<_> = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        let mut tail = Tail::default();
        let mut read: String = units.iter().map(|unit| tail.push(unit.as_bytes())).collect();
        read += &tail.flush();
        prop_assert_eq!(read, text);
    }

    #[test]
    fn any_json_keeps_its_value_on_one_line(text in any::<String>(), number in any::<i64>()) {
        let value = serde_json::json!({ &text: [number, { "t": &text }], "e": {} });
        let one = compact(serde_json::to_string_pretty(&value).unwrap().as_bytes());
        prop_assert_eq!(one.lines().count(), 1);
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&one).unwrap(), value);
    }

    #[test]
    fn no_bytes_trouble_a_text(bytes in prop::collection::vec(any::<u8>(), 0..40), more in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = in_two(&bytes, &more);
        let _ = compact(&bytes);
        let _ = View::new(&bytes);
    }
}
