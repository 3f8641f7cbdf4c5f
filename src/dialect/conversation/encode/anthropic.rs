//! To Anthropic's Messages.

use super::super::{
    Cannot, Format, Media, MediaKind, Outcome, Part, Role, Thought, ToolChoice, Turn, media, models,
};
use super::anthropic_settings::{ADAPTIVE, STRUCTURED, always_thinks};
use super::{Encoding, FILLER, NO_KNOB, Sent, refuse, schema, words};
use crate::dialect::Dialect;

/// What is asked for in words where it cannot be held.
const JSON_ALONE: &str = "Answer with one JSON value alone: no other words, no code fence.";

/// How an answer is to be held to its form.
pub(super) enum Held {
    Not,
    Schema(Vec<u8>),
    Words(String),
}

impl<'a> Encoding<'a> {
    pub(super) fn anthropic(&mut self) -> Result<String, Cannot> {
        let talk = self.talk;
        let generation = models::claude(self.terms.model);
        let since = |first| generation.is_some_and(|it| it >= first);
        let always = always_thinks(self.terms.model, generation);
        if since(ADAPTIVE) && !talk.asks() {
            return Err(Cannot::Prefill);
        }
        self.out.open(b'{');
        self.out.text("model", self.terms.model);
        let held = self.anthropic_held(since(STRUCTURED))?;
        self.anthropic_system(&held);
        self.anthropic_messages()?;
        if talk.stream {
            self.out.member("stream").bool(true);
        }
        let tools = self.tools()?;
        if !tools.is_empty() {
            self.out.member("tools").open(b'[');
            for tool in tools {
                self.out.open(b'{');
                self.out.text("name", &tool.name);
                if let Some(description) = &tool.description {
                    self.out.text("description", description);
                }
                match &tool.parameters {
                    Some(parameters) if parameters.get("type").is_some() => {
                        self.out.member("input_schema").json(parameters);
                    }
                    _ => self.out.member("input_schema").raw("{\"type\":\"object\",\"properties\":{}}"),
                }
                self.out.close(b'}');
            }
            self.out.close(b']');
            self.anthropic_choice(always)?;
        }
        let thinks = self.anthropic_thinking(generation, &held)?;
        self.anthropic_sampling(generation, thinks)?;
        if let Some(user) = &talk.user {
            self.out.member("metadata").open(b'{');
            self.out.text("user_id", user);
            self.out.close(b'}');
        }
        if talk.logprobs.is_some() {
            self.lack("logprobs", NO_KNOB)?;
        }
        if talk.logit_bias.is_some() {
            self.lack("logit_bias", NO_KNOB)?;
        }
        self.leftovers(false, false)?;
        self.out.close(b'}');
        Ok("/v1/messages".to_owned())
    }

    /// Whether the answer's form can be held to, or is asked for in words.
    fn anthropic_held(&mut self, structured: bool) -> Result<Held, Cannot> {
        match &self.talk.format {
            Format::Text => Ok(Held::Not),
            Format::Json => {
                self.lack("response_format", "is asked for in words, and not held to")?;
                Ok(Held::Words(JSON_ALONE.to_owned()))
            }
            Format::Schema { schema, .. } => {
                let mut out = Vec::new();
                if structured && schema::closed(schema, &mut out) {
                    return Ok(Held::Schema(out));
                }
                self.lack("response_format", "is asked for in words, and not held to")?;
                Ok(Held::Words(format!(
                    "{JSON_ALONE} It must conform to this JSON schema: {}",
                    schema.text()
                )))
            }
        }
    }

    /// All instructions, wherever they stood: Anthropic's own rule for OpenAI's clients.
    fn anthropic_system(&mut self, held: &Held) {
        let system = self.talk.turns.iter().filter(|turn| turn.role == Role::System);
        let texts = system.flat_map(|turn| &turn.parts).filter_map(|part| match part {
            Part::Text(text) if !text.trim().is_empty() => Some(text.as_str()),
            _ => None,
        });
        let form = match held {
            Held::Words(words) => Some(words.as_str()),
            Held::Not | Held::Schema(_) => None,
        };
        let texts: Vec<&str> = texts.chain(form).collect();
        if let [alone] = texts.as_slice() {
            self.out.text("system", alone);
        } else if !texts.is_empty() {
            self.out.member("system").open(b'[');
            for text in texts {
                self.anthropic_text(text);
            }
            self.out.close(b']');
        }
    }

    fn anthropic_text(&mut self, text: &str) {
        self.out.open(b'{');
        self.out.text("type", "text");
        self.out.text("text", text);
        self.out.close(b'}');
    }

    /// Roles alternate, the user begins, and nothing is empty.
    fn anthropic_messages(&mut self) -> Result<(), Cannot> {
        let talk = self.talk;
        self.out.member("messages").open(b'[');
        let mut open = "";
        let spoken = |turn: &Turn| turn.role != Role::System && says_something(turn);
        let last = talk.turns.iter().rposition(spoken);
        for (at, turn) in talk.turns.iter().enumerate() {
            let role = match turn.role {
                Role::System => continue,
                Role::User | Role::Tool => "user",
                Role::Assistant => "assistant",
            };
            if !says_something(turn) {
                continue;
            }
            if open.is_empty() && role == "assistant" {
                self.anthropic_open("user");
                self.anthropic_text(FILLER);
                open = "user";
            }
            if open != role {
                if !open.is_empty() {
                    self.anthropic_close();
                }
                self.anthropic_open(role);
                open = role;
            }
            for part in &turn.parts {
                self.anthropic_part(part, Some(at) == last && turn.role == Role::Assistant)?;
            }
        }
        // Only instructions, or nothing but blanks at the end.
        if open.is_empty() || (open == "assistant" && talk.asks()) {
            if !open.is_empty() {
                self.anthropic_close();
            }
            self.anthropic_open("user");
            self.anthropic_text(FILLER);
        }
        self.anthropic_close();
        self.out.close(b']');
        Ok(())
    }

    fn anthropic_open(&mut self, role: &str) {
        self.out.open(b'{');
        self.out.text("role", role);
        self.out.member("content").open(b'[');
    }

    fn anthropic_close(&mut self) {
        self.out.close(b']');
        self.out.close(b'}');
    }

    fn anthropic_part(&mut self, part: &'a Part, begun: bool) -> Result<(), Cannot> {
        match part {
            Part::Text(text) | Part::Refusal(text) if text.trim().is_empty() => {}
            // An answer that it is to go on with must not end in blanks.
            Part::Text(text) | Part::Refusal(text) => {
                self.anthropic_text(if begun { text.trim_end() } else { text });
            }
            Part::Media(medium) => self.anthropic_media(medium)?,
            Part::Thought(thought) => {
                let signature = thought.signature.as_ref().filter(|_| own(thought));
                if let Some(redacted) = &thought.redacted {
                    self.out.open(b'{');
                    self.out.text("type", "redacted_thinking");
                    self.out.text("data", redacted);
                    self.out.close(b'}');
                } else if let Some(signature) = signature {
                    self.out.open(b'{');
                    self.out.text("type", "thinking");
                    self.out.text("thinking", &thought.text);
                    self.out.text("signature", signature);
                    self.out.close(b'}');
                } else {
                    self.note("earlier thinking", "bears no signature of this provider");
                }
            }
            Part::Call(call) => {
                self.out.open(b'{');
                self.out.text("type", "tool_use");
                let id = self.id(&call.id);
                self.out.text("id", &id);
                self.out.text("name", &call.name);
                self.out.member("input").arguments(&call.arguments, call.object);
                self.out.close(b'}');
            }
            Part::Result(outcome) => self.anthropic_result(outcome)?,
        }
        Ok(())
    }

    fn anthropic_result(&mut self, outcome: &'a Outcome) -> Result<(), Cannot> {
        self.out.open(b'{');
        self.out.text("type", "tool_result");
        let id = self.id(&outcome.id);
        self.out.text("tool_use_id", &id);
        if outcome.parts.iter().any(|part| matches!(part, Part::Media(_))) {
            self.out.member("content").open(b'[');
            for part in &outcome.parts {
                self.anthropic_part(part, false)?;
            }
            self.out.close(b']');
        } else {
            let words = words(&outcome.parts);
            if !words.trim().is_empty() {
                self.out.text("content", &words);
            }
        }
        if outcome.error {
            self.out.member("is_error").bool(true);
        }
        self.out.close(b'}');
        Ok(())
    }

    fn anthropic_media(&mut self, medium: &'a Media) -> Result<(), Cannot> {
        if medium.kind == MediaKind::Audio {
            return Err(refuse(medium, "a sound"));
        }
        let image = medium.kind == MediaKind::Image;
        let sent = self.sent(medium, true, self.talk.client == Dialect::Anthropic)?;
        if let Sent::Data(media_type, base64) = &sent {
            let takes: &[&str] = if image {
                &["image/png", "image/jpeg", "image/gif", "image/webp"]
            } else {
                &["application/pdf"]
            };
            if !image && media_type.starts_with("text/") {
                let text =
                    media::text(base64).ok_or_else(|| refuse(medium, "a text that is not in UTF-8"))?;
                self.anthropic_text(if text.trim().is_empty() { FILLER } else { &text });
                return Ok(());
            }
            if !takes.contains(&media_type.as_ref()) {
                let what = if image {
                    "an image other than PNG, JPEG, GIF and WebP"
                } else {
                    "a document other than PDF and text"
                };
                return Err(refuse(medium, what));
            }
        }
        self.out.open(b'{');
        self.out.text("type", if image { "image" } else { "document" });
        self.out.member("source").open(b'{');
        match sent {
            Sent::Data(media_type, base64) => {
                self.out.text("type", "base64");
                self.out.text("media_type", &media_type);
                self.out.member("data").plain(&[], &base64);
            }
            Sent::Url(url) => {
                self.out.text("type", "url");
                self.out.text("url", url);
            }
            Sent::File(id) => {
                self.out.text("type", "file");
                self.out.text("file_id", id);
            }
        }
        self.out.close(b'}');
        if let Some(name) = medium.name.as_ref().filter(|name| !image && !name.is_empty()) {
            self.out.text("title", name);
        }
        self.out.close(b'}');
        Ok(())
    }

    fn anthropic_choice(&mut self, always_thinks: bool) -> Result<(), Cannot> {
        let talk = self.talk;
        let mut choice = self.choice;
        if always_thinks && matches!(choice, ToolChoice::Required | ToolChoice::Named(_)) {
            self.lack("tool_choice", "cannot be demanded at this model")?;
            choice = &ToolChoice::Auto;
        }
        let kind = match choice {
            ToolChoice::Unsaid if talk.parallel.is_none() => return Ok(()),
            ToolChoice::Unsaid | ToolChoice::Auto => "auto",
            ToolChoice::None => "none",
            ToolChoice::Required => "any",
            ToolChoice::Named(_) => "tool",
        };
        self.out.member("tool_choice").open(b'{');
        self.out.text("type", kind);
        if let ToolChoice::Named(name) = choice {
            self.out.text("name", name);
        }
        if let Some(parallel) = talk.parallel.filter(|_| kind != "none") {
            self.out.member("disable_parallel_tool_use").bool(!parallel);
        }
        self.out.close(b'}');
        Ok(())
    }
}

/// Whether there is anything in a turn that may be sent.
fn says_something(turn: &Turn) -> bool {
    turn.parts.iter().any(|part| match part {
        Part::Text(text) | Part::Refusal(text) => !text.trim().is_empty(),
        Part::Thought(thought) => own(thought),
        Part::Media(_) | Part::Call(_) | Part::Result(_) => true,
    })
}

/// Whether Anthropic knows this thinking for its own.
pub(super) fn own(thought: &Thought) -> bool {
    thought.redacted.is_some() || thought.signature.as_deref().is_some_and(|it| !it.is_empty())
}
