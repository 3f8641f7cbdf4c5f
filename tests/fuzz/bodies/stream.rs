//! What the targets over a server's bytes share: how an input is read, how a stream is cut, what it says.

use edgeward::dialect::event::{ErrorFact, Facts};
use edgeward::dialect::{Dialect, inspect_event};
use edgeward::wire::{Framing, Splitter, sse};

/// In the order of an input's first byte: `0` to `8`.
const DIALECTS: [Dialect; 9] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiCompletions,
    Dialect::OpenaiResponses,
    Dialect::OpenaiEmbeddings,
    Dialect::OllamaChat,
    Dialect::OllamaGenerate,
    Dialect::OllamaEmbed,
    Dialect::Anthropic,
    Dialect::Gemini,
];

/// An input: a dialect, a byte of options, two bytes for the way it is cut, then a server's bytes.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub dialect: Dialect,
    pub options: u8,
    pub plan: u16,
    pub stream: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn read(data: &'a [u8]) -> Option<Input<'a>> {
        let (&[dialect, options, high, low], stream) = data.split_first_chunk()?;
        let dialect = DIALECTS[usize::from(dialect.wrapping_sub(b'0')) % DIALECTS.len()];
        Some(Input { dialect, options, plan: u16::from_be_bytes([high, low]), stream })
    }

    pub fn option(&self, bit: u8) -> bool {
        self.options & (1 << bit) != 0
    }

    /// The stream in chunks of 1 byte up to a few, a few dozen, or a few hundred.
    pub fn chunks(&self) -> Vec<&'a [u8]> {
        let most = [1, 3, 40, 700][usize::from(self.plan & 3)];
        let mut random = u32::from(self.plan >> 2) + 1;
        let mut chunks = Vec::new();
        let mut rest = self.stream;
        while !rest.is_empty() {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let length = (1 + (random >> 16) as usize % most).min(rest.len());
            let (chunk, after) = rest.split_at(length);
            chunks.push(chunk);
            rest = after;
        }
        chunks
    }
}

/// The stream's pieces as the splitter marks them off, the unfinished last one included, and whether
/// the stream may end there.
pub fn pieces(framing: Framing, chunks: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let mut splitter = Splitter::new(framing);
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    for chunk in chunks {
        let mut rest = *chunk;
        while let Some(end) = splitter.push(rest) {
            assert!((1..=rest.len()).contains(&end), "an end at {end} of {}", rest.len());
            piece.extend_from_slice(&rest[..end]);
            pieces.push(std::mem::take(&mut piece));
            rest = &rest[end..];
        }
        piece.extend_from_slice(rest);
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    (pieces, splitter.is_between())
}

/// What a piece says, ranges resolved: the same for the same event wherever it stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    pub facts: Facts,
    pub model: Option<Vec<u8>>,
    pub usage_null: bool,
    pub error: Vec<u8>,
    pub data: Option<Vec<u8>>,
}

/// What the pieces of a stream say, signs of life left out.
pub fn heard(dialect: Dialect, pieces: &[Vec<u8>]) -> Vec<Heard> {
    pieces.iter().map(|piece| hear(dialect, piece)).filter(|heard| !heard.facts.blank).collect()
}

pub fn hear(dialect: Dialect, piece: &[u8]) -> Heard {
    let mut join = vec![0; piece.len()];
    let mut facts = inspect_event(dialect, piece, &mut join);
    check_ranges(&facts, piece);
    let data = match dialect.framing() {
        Framing::Ndjson => Some(piece.trim_ascii().to_vec()),
        Framing::Sse => {
            let event = sse::parse(piece, &mut join);
            event
                .unwrap_or_else(|_| panic!("a join as long as the event is too small"))
                .data
                .map(<[u8]>::to_vec)
        }
    };
    // Where the text is moves with what stands before it; what it is, is in the data.
    let text = facts.text.take().map(|at| &piece[at]);
    assert!(text.is_none_or(|text| !text.is_empty()));
    let model = facts.model.take().map(|at| piece[at].to_vec());
    let usage_null = facts.usage_null.take().map(|at| &piece[at]);
    assert!(usage_null.is_none_or(|null| null == b"null"));
    let usage_null = usage_null.is_some();
    let reason = facts.reason.take().map(|at| &piece[at]);
    assert!(
        reason.is_none_or(|reason| reason.len() > 2 && reason.starts_with(b"\"") && reason.ends_with(b"\""))
    );
    let at = facts.usage_only_at.take();
    assert!(
        at.is_none_or(|[choices, usage]| piece[choices].first() == Some(&b'[') && !piece[usage].is_empty())
    );
    let error = facts.error.as_ref().map(|error| piece[error.text.clone()].trim_ascii().to_vec());
    facts.error = facts.error.map(|error| ErrorFact { text: 0..0, ..error });
    Heard { facts, model, usage_null, error: error.unwrap_or_default(), data }
}

/// Ranges are within the bytes that were looked at.
pub fn check_ranges(facts: &Facts, bytes: &[u8]) {
    let error = facts.error.as_ref().map(|error| &error.text);
    let ranges = [facts.model.as_ref(), facts.usage_null.as_ref(), facts.reason.as_ref(), error];
    for range in ranges.into_iter().flatten() {
        assert!(bytes.get(range.clone()).is_some(), "{range:?} of {} in {facts:?}", bytes.len());
    }
}
