//! What a stream's token frames have in common: all but the token's text.
//!
//! A stream says the same few hundred bytes again and again around each token. Once one such frame was read
//! and found to say nothing else, a frame that differs from it only inside that one string says nothing else
//! either; that is told by two comparisons instead of a look at its JSON.

use crate::dialect::event::Facts;

/// The bytes before and after the text in the last token frame that was read.
#[derive(Debug)]
pub struct Shape {
    frame: Box<[u8]>,
    /// Where the text stood in `frame`.
    start: usize,
    end: usize,
}

/// Frames longer than this are not worth keeping, in bytes.
const FRAME_BYTES: usize = 1024;
/// A text longer than this is read as usual, in bytes.
const TEXT_BYTES: usize = 64;

impl Shape {
    /// The shape of `raw`, if it is a plain token frame: one text, and nothing else that matters.
    #[must_use]
    pub fn learn(raw: &[u8], facts: &Facts) -> Option<Shape> {
        let Facts {
            blank: false,
            comments: false,
            finish: None,
            usage: None,
            usage_only: false,
            usage_only_at: _,
            besides: _,
            reason: None,
            done: false,
            error: None,
            progress: None,
            usage_null: None,
            alien: false,
            nameless: false,
            content: _,
            thinking: _,
            anonymous_thinking: _,
            model: _,
            choices: _,
            ended: _,
            text: Some(text),
        } = facts
        else {
            return None;
        };
        let fits = raw.len() <= FRAME_BYTES && text.start < text.end && text.end <= raw.len();
        fits.then(|| Shape { frame: raw.into(), start: text.start, end: text.end })
    }

    /// Whether `raw` is this shape around another text. A text with escapes or control characters is left to
    /// those who read JSON.
    #[must_use]
    pub fn fits(&self, raw: &[u8]) -> bool {
        let (Some(before), Some(after)) = (self.frame.get(..self.start), self.frame.get(self.end..)) else {
            return false;
        };
        let Some(text) = raw.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)) else {
            return false;
        };
        let plain = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
        (1..=TEXT_BYTES).contains(&text.len()) && text.iter().all(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{Dialect, inspect_event};
    use proptest::prelude::*;

    const BEFORE: &str = r#"data: {"id":"c","model":"m","choices":[{"index":0,"delta":{"content":""#;

    fn facts(raw: &[u8]) -> Facts {
        inspect_event(Dialect::OpenaiChat, raw, &mut vec![0; raw.len()])
    }

    fn frame(text: &str, rest: &str) -> Vec<u8> {
        format!("{BEFORE}{text}\"{rest}\n\n").into_bytes()
    }

    #[test]
    fn only_plain_token_frames_are_learnt() {
        let learnt = |rest: &str| {
            let raw = frame("a", rest);
            Shape::learn(&raw, &facts(&raw)).is_some()
        };
        assert!(learnt(r#"},"finish_reason":null}]}"#));
        assert!(!learnt(r#"},"finish_reason":"stop"}]}"#));
        assert!(!learnt(r#"},"finish_reason":null}],"usage":{"completion_tokens":1}}"#));
        assert!(!learnt(r#"},"finish_reason":null}],"usage":null}"#));
        assert!(!learnt(r#"},"finish_reason":null}],"error":"x"}"#));
        assert!(!learnt(r#","reasoning":"b"},"finish_reason":null}]}"#), "two texts");
    }

    #[test]
    fn another_text_fits_and_nothing_else_does() {
        let rest = r#"},"finish_reason":null}]}"#;
        let raw = frame("a", rest);
        let shape = Shape::learn(&raw, &facts(&raw)).unwrap();
        for text in ["b", " the", "\u{e9}\u{4e2d}", "}]"] {
            assert!(shape.fits(&frame(text, rest)), "{text}");
        }
        for text in ["", "\\n", "a\"b", "\n", "\r\nevent: error\r\ndata: "] {
            assert!(!shape.fits(&frame(text, rest)), "{text:?}");
        }
        assert!(!shape.fits(&frame("b", r#"},"finish_reason":"stop"}]}"#)));
        assert!(!shape.fits(b"data: [DONE]\n\n"));
        assert!(!shape.fits(b""));
    }

    proptest! {
        /// Whatever fits says, when it is read, exactly what the shape's own frame said.
        #[test]
        fn what_fits_says_the_same(text in "[ -~\\n\\r\"{}:,a\u{e9}]{0,40}", other in "[a-z]{1,5}") {
            let rest = r#"},"finish_reason":null}]}"#;
            let learnt = frame(&other, rest);
            let shape = Shape::learn(&learnt, &facts(&learnt)).unwrap();
            let raw = frame(&text, rest);
            if shape.fits(&raw) {
                let (mut a, mut b) = (facts(&raw), facts(&learnt));
                (a.text, b.text, a.model, b.model) = (None, None, None, None);
                prop_assert_eq!(a, b);
            }
        }
    }
}
