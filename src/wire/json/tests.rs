//! The cursor and the profile against serde_json.

use proptest::prelude::*;

use super::*;
use crate::limits::JSON_DEPTH_MAX;

fn check(text: &[u8]) -> Result<(), Stop> {
    let mut c = Cursor::new(text);
    c.skip()?;
    c.finish()
}

/// The same through object() and array(), which track depth themselves.
fn walk(c: &mut Cursor<'_>) -> Result<(), Stop> {
    match c.peek()? {
        b'{' => c.object(|_, c| walk(c)).map(|_| ()),
        b'[' => c.array(walk).map(|_| ()),
        _ => c.skip(),
    }
}

fn check_walking(text: &[u8]) -> Result<(), Stop> {
    let mut c = Cursor::new(text);
    walk(&mut c)?;
    c.finish()
}

fn depth(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        serde_json::Value::Object(items) => 1 + items.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        "[a-z\"\\\\\n\té漢😀]{0,12}".prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::hash_map("[a-z\"\\\\é]{0,6}", inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Nearly JSON: the alphabet of JSON in any order.
fn nearly() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"a\"", "\"", "\\", "\\n", "\\u00e9", "\\u0", "1", "-", "0", ".5",
            "e+3", "true", "fals", "null", " ", "\n", "é",
        ]),
        0..14,
    )
    .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn good_json_is_read_and_any_beginning_of_it_only_ends(value in value(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        prop_assert_eq!(check(text.as_bytes()), Ok(()));
        prop_assert_eq!(check_walking(text.as_bytes()), Ok(()));
        for end in 0..text.len() {
            let start = &text.as_bytes()[..end];
            // A number may be whole before it ends.
            let number = matches!(value, serde_json::Value::Number(_));
            prop_assert!(check(start) == Err(Stop::End) || number, "{:?}", start);
            prop_assert!(check_walking(start) == Err(Stop::End) || number, "{:?}", start);
        }
    }

    #[test]
    fn what_serde_json_takes_is_taken_and_nothing_else(text in nearly()) {
        let oracle = serde_json::from_str::<serde_json::Value>(&text).is_ok();
        // Raw control characters in strings are let pass, on purpose.
        prop_assert!(check(text.as_bytes()).is_ok() == oracle || text.contains('\n'), "{}", text);
        prop_assert_eq!(check(text.as_bytes()).is_ok(), check_walking(text.as_bytes()).is_ok());
    }

    #[test]
    fn the_profile_counts_as_serde_json_does(value in value(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let profile = profile(text.as_bytes()).unwrap();
        prop_assert_eq!(profile.depth, depth(&value));
        prop_assert_eq!(profile.blobs, 0);
    }

    #[test]
    fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = check(&bytes);
        let _ = check_walking(&bytes);
        let _ = Cursor::new(&bytes).truthy();
        let _ = Cursor::new(&bytes).number();
        let _ = profile(&bytes);
    }
}

#[test]
fn depth_is_bounded_the_same_everywhere() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
        let just = nested(JSON_DEPTH_MAX);
        assert_eq!(check(just.as_bytes()), Ok(()));
        assert_eq!(check_walking(just.as_bytes()), Ok(()));
        assert_eq!(profile(just.as_bytes()).unwrap().depth, JSON_DEPTH_MAX);
        let over = nested(JSON_DEPTH_MAX + 1);
        assert_eq!(check(over.as_bytes()), Err(Stop::TooDeep));
        assert_eq!(check_walking(over.as_bytes()), Err(Stop::TooDeep));
        assert_eq!(profile(over.as_bytes()), Err(TooDeep));
        // Mixed: some levels walked, the rest skipped.
        let mut c = Cursor::new(over.as_bytes());
        assert_eq!(c.object(|_, _| Ok(())).and_then(|_| c.finish()), Err(Stop::TooDeep));
    }
    let bomb = "[".repeat(1 << 20);
    assert_eq!(check(bomb.as_bytes()), Err(Stop::TooDeep));
    assert_eq!(profile(bomb.as_bytes()), Err(TooDeep));
    // Brackets in strings are text.
    let text = format!("\"{}\\\"[[\"", "[".repeat(1000));
    assert_eq!(profile(text.as_bytes()).unwrap(), Profile { depth: 0, text_bytes: 1004, blobs: 0 });
}

#[test]
fn pictures_are_counted_and_long_prose_is_text() {
    let base64 = "iVBORw0KGgo".repeat(2000);
    for body in [
        format!(r#"{{"url":"data:image/png;base64,{base64}"}}"#),
        format!(r#"{{"images":["{base64}"]}}"#),
        format!(r#"["{}"]"#, base64.replace('o', "\\/")),
    ] {
        let profile = profile(body.as_bytes()).unwrap();
        assert_eq!((profile.blobs, profile.text_bytes < 32), (1, true), "{}", &body[..40]);
        assert!((1000..1010).contains(&profile.estimated_tokens()));
    }
    let prose = format!(r#"["{}"]"#, "The quick brown fox. ".repeat(1000));
    assert_eq!(profile(prose.as_bytes()).unwrap(), Profile { depth: 1, text_bytes: 21_000, blobs: 0 });
    let quoted = format!(r#"["data: {}"]"#, "The quick brown fox. ".repeat(1000));
    assert_eq!(profile(quoted.as_bytes()).unwrap().blobs, 0);
}

#[test]
fn values_of_any_type_are_read_for_what_they_say() {
    for (text, says) in [
        ("\"a\"", true),
        ("\"\"", false),
        ("\"\\n\"", true),
        ("null", false),
        ("false", false),
        ("true", true),
        ("0", false),
        ("0.0", true),
        ("[ ]", false),
        ("[0]", true),
        ("{ }", false),
        ("{\"a\":null}", true),
        ("\"cut", true),
        ("[\"cut", true),
        ("{\"cut", true),
    ] {
        assert_eq!(Cursor::new(text.as_bytes()).truthy(), Ok(says), "{text}");
    }
    for (text, number) in [("7", Some(7)), ("-7", None), ("7.5", None), ("\"7\"", None), ("null", None)] {
        assert_eq!(Cursor::new(text.as_bytes()).number(), Ok(number), "{text}");
    }
    for text in ["[", "{", "\"", "nul", "-", "1.", "1e"] {
        assert!(!matches!(Cursor::new(text.as_bytes()).truthy(), Ok(true)), "{text}");
    }
}

#[test]
fn a_string_says_where_it_is() {
    let text = br#" {"model" : "a\"b"}"#;
    let mut found = None;
    Cursor::new(text)
        .object(|_, c| {
            found = c.string()?;
            Ok(())
        })
        .unwrap();
    let found = found.unwrap();
    assert_eq!(&text[found.quoted()], br#""a\"b""#);
    assert_eq!(&text[found.inside()], found.raw);
}

#[test]
fn keys_compare_decoded() {
    assert!(key_is(b"model", "model"));
    assert!(key_is(b"mod\\u0065l", "model"));
    assert!(!key_is(b"mod\\u0066l", "model"));
    assert!(!key_is(b"mod\\", "model"));
}

#[test]
fn texts_are_made_readable() {
    assert_eq!(readable(br#"GPU \"0\" \u00e9"#), "GPU \"0\" é");
    assert_eq!(readable(b"<a href=\"x\">"), "<a href=\"x\">");
    assert_eq!(readable(b"cut \\u00"), "cut \\u00");
    assert_eq!(readable(b"\xff"), "\u{fffd}");
}
