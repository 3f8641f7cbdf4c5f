//! Text out of JSON strings that may be cut inside a character, and back into them.

/// The end of a text that more may follow: half a character waits for its other half. Servers that cut their text
/// by bytes, or by JavaScript's units, give one in each of two frames.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail {
    /// The first half of a surrogate pair.
    high: Option<u16>,
    /// The beginning of a UTF-8 sequence.
    bytes: heapless::Vec<u8, 3>,
}

impl Tail {
    /// What a JSON string's inside says, after what waited; half a character at its end waits.
    pub(super) fn push(&mut self, raw: &[u8]) -> String {
        let mut bytes = Vec::with_capacity(raw.len() + self.bytes.len());
        bytes.extend_from_slice(&self.bytes);
        self.bytes.clear();
        let mut rest = raw;
        while let Some((first, after)) = rest.split_first() {
            let unit;
            (unit, rest) = match (first, after.split_first()) {
                (b'\\', Some((b'u', digits))) => {
                    let (digits, after) = digits.split_at_checked(4).unwrap_or((digits, b""));
                    let unit =
                        std::str::from_utf8(digits).ok().and_then(|text| u16::from_str_radix(text, 16).ok());
                    (Unit::Code(unit.unwrap_or(0xFFFD)), after)
                }
                (b'\\', Some((escaped, after))) => (Unit::Byte(unescaped(*escaped)), after),
                _ => (Unit::Byte(*first), after),
            };
            self.unit(unit, &mut bytes);
        }
        self.decoded(bytes)
    }

    fn unit(&mut self, unit: Unit, out: &mut Vec<u8>) {
        let high = self.high.take();
        let mut push = |c: char| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        if let (Some(high), Unit::Code(low @ 0xDC00..=0xDFFF)) = (high, &unit) {
            let pair = char::decode_utf16([high, *low]).next().and_then(Result::ok);
            push(pair.unwrap_or(char::REPLACEMENT_CHARACTER));
            return;
        }
        if high.is_some() {
            push(char::REPLACEMENT_CHARACTER);
        }
        match unit {
            Unit::Byte(byte) => out.push(byte),
            Unit::Code(high @ 0xD800..=0xDBFF) => self.high = Some(high),
            Unit::Code(code) => {
                push(char::from_u32(u32::from(code)).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
    }

    /// As text; what is none is replaced, but for the beginning of a character at the end, which waits.
    fn decoded(&mut self, bytes: Vec<u8>) -> String {
        let mut bytes = match String::from_utf8(bytes) {
            Ok(text) => return text,
            Err(error) => error.into_bytes(),
        };
        // A character has 4 bytes at most, so its beginning is within the last 3.
        let first = bytes.len().saturating_sub(3);
        for at in first..bytes.len() {
            let tail = bytes.get(at..).unwrap_or_default();
            if matches!(std::str::from_utf8(tail), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none())
            {
                self.bytes = heapless::Vec::from_slice(tail).unwrap_or_default();
                bytes.truncate(at);
                break;
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Nothing follows: half a character is none.
    pub(super) fn flush(&mut self) -> String {
        let half = self.high.take().is_some() || !self.bytes.is_empty();
        self.bytes.clear();
        if half { String::from(char::REPLACEMENT_CHARACTER) } else { String::new() }
    }
}

enum Unit {
    Byte(u8),
    /// Of UTF-16.
    Code(u16),
}

const fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 0x08,
        b'f' => 0x0C,
        other => other,
    }
}

/// What a JSON string's inside says that nothing follows.
pub(super) fn whole(raw: &[u8]) -> String {
    let mut tail = Tail::default();
    let mut text = tail.push(raw);
    text.push_str(&tail.flush());
    text
}

/// The value of a place in a template.
#[derive(Clone, Copy)]
pub(super) enum Fill<'a> {
    /// Becomes a JSON string.
    Text(&'a str),
    Number(u64),
    /// JSON as it is; must have no line end outside of strings ([`compact`]).
    Json(&'a str),
}

impl From<Option<u64>> for Fill<'_> {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Fill::Json("null"), Fill::Number)
    }
}

/// Appends `template` with each `$` replaced by the next value.
pub(super) fn fill(out: &mut Vec<u8>, template: &str, values: &[Fill<'_>]) {
    let mut values = values.iter();
    for (at, part) in template.split('$').enumerate() {
        match (at, values.as_slice().first()) {
            (0, _) | (_, None) => {}
            (_, Some(Fill::Text(text))) => quote(out, text),
            (_, Some(Fill::Number(number))) => {
                let mut buffer = [0; 20];
                out.extend_from_slice(decimal(*number, &mut buffer));
            }
            (_, Some(Fill::Json(json))) => out.extend_from_slice(json.as_bytes()),
        }
        if at > 0 {
            values.next();
        }
        out.extend_from_slice(part.as_bytes());
    }
}

fn decimal(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    for (index, place) in buffer.iter_mut().enumerate().rev() {
        // Below 10, so it fits.
        *place = b'0' + (number % 10) as u8;
        at = index;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    buffer.get(at..).unwrap_or_default()
}

/// Appends `text` as a JSON string. Besides what JSON demands, what Python's `splitlines` takes for a line end is
/// escaped: httpx, under Ollama's client, splits lines so.
pub(super) fn quote(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    escape(out, text);
    out.push(b'"');
}

fn escape(out: &mut Vec<u8>, text: &str) {
    let mut plain = 0;
    for (at, c) in text.char_indices() {
        let short = match c {
            '"' => b'"',
            '\\' => b'\\',
            '\n' => b'n',
            '\r' => b'r',
            '\t' => b't',
            '\0'..='\x1F' | '\x7F' | '\u{85}' | '\u{2028}' | '\u{2029}' => 0,
            _ => continue,
        };
        out.extend_from_slice(text.get(plain..at).unwrap_or_default().as_bytes());
        plain = at + c.len_utf8();
        if short == 0 {
            out.extend_from_slice(b"\\u");
            let code = u32::from(c);
            out.extend([12, 8, 4, 0].map(|by| {
                // Four bits, so it is a digit.
                let digit = char::from_digit(code >> by & 15, 16).unwrap_or('0');
                digit as u8
            }));
        } else {
            out.extend_from_slice(&[b'\\', short]);
        }
    }
    out.extend_from_slice(text.get(plain..).unwrap_or_default().as_bytes());
}

/// Good JSON without white space between its parts, and with no line end of any kind in it, so that it may stand on
/// a line. Strings stay as they are but for that; what is no text in them is replaced.
pub(super) fn compact(json: &[u8]) -> String {
    let text = String::from_utf8_lossy(json);
    let mut out = Vec::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            ' ' | '\t' | '\n' | '\r' if !in_string => continue,
            '"' if !escaped => in_string = !in_string,
            _ => {}
        }
        escaped = in_string && c == '\\' && !escaped;
        let mut bytes = [0; 4];
        let c = c.encode_utf8(&mut bytes);
        if in_string && !matches!(c.as_bytes(), b"\"" | b"\\") {
            // Raw control characters are no JSON, but pass our reader.
            escape(&mut out, c);
        } else {
            out.extend_from_slice(c.as_bytes());
        }
    }
    String::from_utf8(out).unwrap_or_default()
}
