//! What a request needs of a target, and which conversation it belongs to: read as its members pass, nothing kept.

use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;

use super::Dialect;
use crate::limits;
use crate::wire::json::{Cursor, Stop, key_is, readable};

/// What not every target can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Tools are offered to the model.
    pub tools: bool,
    /// A picture is in the prompt.
    pub images: bool,
    /// JSON is asked for, with a schema or without.
    pub json: bool,
    /// A picture or a file is named by a URL: whoever is given it will fetch it.
    pub urls: bool,
    /// A picture or a file is named by an id that its provider alone knows.
    pub files: bool,
    /// A file's bytes stand beside its id.
    pub named: bool,
}

/// Which conversation a request belongs to, as far as its body tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// Alike for all its turns; different ones are told apart by their beginnings, so it is no identity.
    pub key: u64,
    /// It had a turn before this one: there is an answer in it already, or the client names it itself.
    pub later: bool,
}

/// Ollama's `options` that a model is loaded by: with others than it was loaded with it is loaded again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `num_ctx`, in tokens.
    pub num_ctx: Option<u32>,
    /// `num_batch`, in tokens.
    pub num_batch: Option<u32>,
    /// `num_gpu`, in layers.
    pub num_gpu: Option<i32>,
}

/// What has been seen so far of one request's members.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) dialect: Dialect,
    pub(super) needs: Needs,
    /// What the body only names; [`limits::NAMED_MAX`] of it.
    pub(super) references: Vec<Named>,
    /// There is more.
    pub(super) more: bool,
    /// Where the body begins in memory, and the present member's value in the body.
    body: usize,
    value: usize,
    /// Of `prompt_cache_key`.
    named: Option<u64>,
    /// Of what stands before the messages, wherever in the body that is.
    system: u64,
    opening: Opening,
}

/// The messages up to and including the user's first.
#[derive(Debug)]
struct Opening {
    hash: DefaultHasher,
    /// The user's first message is in it.
    whole: bool,
    /// The model has spoken.
    answered: bool,
    /// So many bytes more are looked at.
    left: usize,
}

/// The texts of one message, or of one item of a Responses `input`.
struct Message {
    text: DefaultHasher,
    left: usize,
    user: bool,
    models: bool,
}

impl Scan {
    pub(super) fn new(dialect: Dialect, body: &[u8]) -> Self {
        Scan {
            dialect,
            needs: Needs::default(),
            references: Vec::new(),
            more: false,
            body: body.as_ptr() as usize,
            value: 0,
            named: None,
            system: 0,
            opening: Opening {
                hash: DefaultHasher::new(),
                whole: false,
                answered: false,
                left: limits::CONVERSATION_BYTES,
            },
        }
    }

    /// One member of the body. Its value is JSON, and no deeper than [`limits::JSON_DEPTH_MAX`]; of one that has
    /// another form than the dialect's nothing is learned, and its target may judge it.
    pub(super) fn member(&mut self, key: &str, value: &str) {
        self.value = (value.as_ptr() as usize).saturating_sub(self.body);
        let mut at = Cursor::new(value.as_bytes());
        let seen = match (key, self.dialect) {
            ("tools" | "functions", _) => some_in(&mut at).map(|some| self.needs.tools |= some),
            ("response_format" | "output_format", _) => self.format(&mut at),
            ("text" | "output_config", _) => self.nested_format(&mut at),
            ("format", Dialect::OllamaChat | Dialect::OllamaGenerate) => {
                at.truthy().map(|some| self.needs.json |= some)
            }
            ("images", Dialect::OllamaGenerate) => some_in(&mut at).map(|some| self.needs.images |= some),
            // vLLM's embeddings take a conversation as well.
            (
                "messages",
                Dialect::OpenaiChat | Dialect::OpenaiEmbeddings | Dialect::OllamaChat | Dialect::Anthropic,
            )
            | ("input", Dialect::OpenaiResponses) => self.messages(&mut at),
            ("system", Dialect::Anthropic) | ("instructions", Dialect::OpenaiResponses) => {
                self.system(&mut at)
            }
            ("prompt_cache_key", Dialect::OpenaiChat | Dialect::OpenaiResponses) => self.name(&mut at),
            _ => Ok(()),
        };
        // Not the form that was looked for: what was seen before the fault stands.
        let _other_form: Result<(), Stop> = seen;
    }

    /// The conversation, once all members have passed.
    pub(super) fn conversation(&self) -> Option<Conversation> {
        if let Some(key) = self.named {
            return Some(Conversation { key, later: true });
        }
        self.opening.whole.then(|| {
            let mut hash = self.opening.hash.clone();
            hash.write_u64(self.system);
            Conversation { key: hash.finish(), later: self.opening.answered }
        })
    }

    /// `{"type":"json_object"}`, `{"type":"json_schema", …}`.
    fn format(&mut self, at: &mut Cursor<'_>) -> Result<(), Stop> {
        let json = &mut self.needs.json;
        at.object(|key, at| {
            if key_is(key, "type") {
                *json |= at.string()?.is_some_and(|kind| kind.is(b"json_object") || kind.is(b"json_schema"));
            }
            Ok(())
        })?;
        Ok(())
    }

    /// The same one level further down: `text.format`, `output_config.format`.
    fn nested_format(&mut self, at: &mut Cursor<'_>) -> Result<(), Stop> {
        at.object(|key, at| if key_is(key, "format") { self.format(at) } else { Ok(()) })?;
        Ok(())
    }

    fn system(&mut self, at: &mut Cursor<'_>) -> Result<(), Stop> {
        let mut all = Message::new(limits::CONVERSATION_BYTES);
        let seen = self.content(at, &mut all);
        self.system = all.text.finish();
        seen
    }

    fn name(&mut self, at: &mut Cursor<'_>) -> Result<(), Stop> {
        if let Some(name) = at.string()?.filter(|name| !name.raw.is_empty()) {
            let mut hash = DefaultHasher::new();
            hash.write(name.raw);
            self.named = Some(hash.finish());
        }
        Ok(())
    }

    fn messages(&mut self, at: &mut Cursor<'_>) -> Result<(), Stop> {
        if at.peek()? == b'"' {
            let mut alone = self.opening.message();
            alone.user = true;
            let seen = self.content(at, &mut alone);
            self.opening.take(&alone);
            return seen;
        }
        at.array(|at| {
            let mut message = self.opening.message();
            let seen = at.object(|key, at| self.message(key, at, &mut message));
            self.opening.take(&message);
            seen.map(|_| ())
        })?;
        Ok(())
    }

    fn message(&mut self, key: &[u8], at: &mut Cursor<'_>, message: &mut Message) -> Result<(), Stop> {
        if key_is(key, "role") {
            if let Some(role) = at.string()? {
                message.user |= role.is(b"user");
                message.models |= role.is(b"assistant");
            }
        } else if key_is(key, "type") {
            // Of a Responses item: what the model did, or what came of it.
            let own = |kind: &[u8]| kind.starts_with(b"function_call") || kind == b"reasoning";
            message.models |= at.string()?.is_some_and(|kind| own(kind.raw));
        } else if key_is(key, "images") {
            self.needs.images |= some_in(at)?;
        } else if key_is(key, "content") || key_is(key, "output") {
            self.content(at, message)?;
        } else {
            let mut medium = Medium::default();
            let seen = medium.member(key, at, self.body);
            self.take(medium);
            seen?;
        }
        Ok(())
    }

    /// A text, or parts of which some are texts, some pictures, and some (a tool's result) parts again.
    ///
    /// What else a part says does not count: clients move their `cache_control` about from turn to turn.
    fn content(&mut self, at: &mut Cursor<'_>, message: &mut Message) -> Result<(), Stop> {
        if at.peek()? == b'"' {
            if let Some(whole) = at.string()? {
                message.text(whole.raw);
            }
            return Ok(());
        }
        if at.peek()? == b'{' {
            return self.part(at, message);
        }
        at.array(|at| self.part(at, message))?;
        Ok(())
    }

    fn part(&mut self, at: &mut Cursor<'_>, message: &mut Message) -> Result<(), Stop> {
        let mut medium = Medium::default();
        let seen = at.object(|key, at| {
            if key_is(key, "type") {
                let picture = |kind: &[u8]| matches!(kind, b"image" | b"image_url" | b"input_image");
                let kind = at.string()?;
                self.needs.images |= kind.is_some_and(|kind| picture(kind.raw));
                medium.picture |= kind.is_some_and(|kind| kind.is(b"input_image"));
            } else if key_is(key, "text") {
                if let Some(part) = at.string()? {
                    message.text(part.raw);
                }
            } else if key_is(key, "content") {
                // No deeper than the body was found to be.
                self.content(at, message)?;
            } else if key_is(key, "source") {
                // Of Anthropic's document; parts again may stand in it.
                at.peek()?;
                let (start, before) = (self.value + at.at(), medium.found.len());
                at.object(|key, at| {
                    if key_is(key, "content") {
                        self.content(at, message)
                    } else {
                        medium.member(key, at, self.body)
                    }
                })?;
                let all = start..self.value + at.at();
                for named in medium.found.iter_mut().skip(before) {
                    named.form = Form::Source(all.clone());
                }
            } else {
                medium.member(key, at, self.body)?;
            }
            Ok(())
        });
        // What was seen before a fault stands.
        self.take(medium);
        seen.map(|_| ())
    }

    fn take(&mut self, medium: Medium) {
        self.needs.urls |= medium.url;
        self.needs.files |= medium.id && !medium.data;
        self.needs.named |= medium.id && medium.data;
        for mut named in medium.found {
            match &mut named.form {
                // The bytes are there already.
                Form::Member(..) | Form::Source(_) if !named.is_url && medium.data => continue,
                Form::Member(_, name) if medium.picture => *name = "image_url",
                _ => {}
            }
            if self.references.len() < limits::NAMED_MAX {
                self.references.push(named);
            } else {
                self.more = true;
            }
        }
    }
}

/// A picture or a file that the body only names, and where its bytes would stand instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its URL; else its id at the client's provider.
    pub is_url: bool,
    /// Where in the body that stands, quotes included.
    pub text: Range<usize>,
    /// What its bytes take the place of.
    pub form: Form,
}

/// What a reference's bytes take the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// The URL: a data URL stands there instead.
    Url,
    /// All of Anthropic's `source`.
    Source(Range<usize>),
    /// The member `file_id`: a data URL stands there under this name.
    Member(Range<usize>, &'static str),
}

/// How one part names its picture or its file.
#[derive(Default)]
struct Medium {
    picture: bool,
    url: bool,
    id: bool,
    data: bool,
    found: Vec<Named>,
}

impl Medium {
    /// A member of a part, or of the object in it: `url`, `image_url`, `file_url`, vLLM's `video_url` …, with a URL or
    /// with an object that has one; `file` and `file_id`; `data` and `file_data`. `body`: where the body begins in
    /// memory.
    fn member(&mut self, key: &[u8], at: &mut Cursor<'_>, body: usize) -> Result<(), Stop> {
        let url = key.ends_with(b"url") || (key.contains(&b'\\') && readable(key).ends_with("url"));
        let place = |raw: &[u8]| {
            let start = (raw.as_ptr() as usize).saturating_sub(body);
            start.saturating_sub(1)..start + raw.len() + 1
        };
        if url || key_is(key, "file") {
            if at.peek()? == b'{' {
                at.object(|key, at| self.member(key, at, body))?;
            } else if let Some(text) = at.string()?.filter(|_| url) {
                if text.raw.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"data:")) {
                    self.data = true;
                } else {
                    self.url = true;
                    self.found.push(Named { is_url: true, text: place(text.raw), form: Form::Url });
                }
            }
        } else if key_is(key, "file_id") {
            if let Some(id) = at.string()?.filter(|id| !id.raw.is_empty()) {
                self.id = true;
                let (member, text) = (place(key).start..place(id.raw).end, place(id.raw));
                self.found.push(Named { is_url: false, text, form: Form::Member(member, "file_data") });
            }
        } else if key_is(key, "data") || key_is(key, "file_data") {
            self.data |= at.truthy()?;
        }
        Ok(())
    }
}

impl Message {
    fn new(left: usize) -> Self {
        Message { text: DefaultHasher::new(), left, user: false, models: false }
    }

    fn text(&mut self, raw: &[u8]) {
        let part = raw.get(..raw.len().min(self.left)).unwrap_or_default();
        self.left -= part.len();
        self.text.write(part);
        self.text.write_usize(raw.len());
    }
}

impl Opening {
    /// The next one, of which no text is looked at once the opening is whole.
    fn message(&self) -> Message {
        Message::new(if self.whole { 0 } else { self.left })
    }

    fn take(&mut self, message: &Message) {
        self.answered |= message.models;
        if !self.whole {
            self.hash.write_u64(message.text.finish());
            self.whole = message.user;
            self.left = message.left;
        }
    }
}

/// Ollama's token limit, and the options that its models are loaded by. A negative number is the server's own choice.
pub(super) fn ollama_options(text: &str) -> (Option<(u64, Range<usize>)>, Options) {
    let mut limit = None;
    let mut options = Options::default();
    let mut at = Cursor::new(text.as_bytes());
    let seen = at.object(|key, at| {
        at.peek()?;
        let start = at.at();
        let number = at.number()?;
        if key_is(key, "num_predict") {
            limit = number.map(|number| (number, start..at.at()));
        } else if key_is(key, "num_ctx") {
            options.num_ctx = number.and_then(|number| u32::try_from(number).ok());
        } else if key_is(key, "num_batch") {
            options.num_batch = number.and_then(|number| u32::try_from(number).ok());
        } else if key_is(key, "num_gpu") {
            options.num_gpu = number.and_then(|number| i32::try_from(number).ok());
        }
        Ok(())
    });
    // Of another form: its target may judge it.
    let _other_form = seen;
    (limit, options)
}

/// Whether an array has an element.
fn some_in(at: &mut Cursor<'_>) -> Result<bool, Stop> {
    if at.peek()? != b'[' {
        at.skip()?;
        return Ok(false);
    }
    at.truthy()
}

#[cfg(test)]
#[path = "needs_tests.rs"]
mod tests;
