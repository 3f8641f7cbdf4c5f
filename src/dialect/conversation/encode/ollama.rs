//! To Ollama's `/api/chat`.

use super::super::{
    Cannot, Effort, Flavor, Format, Knob, Media, MediaKind, Part, Role, ToolChoice, Turn, media,
};
use super::{Encoding, Sent, attachments, outcome_words, refuse, words};
use crate::dialect::Dialect;

/// Options that decide how a model is loaded: they can evict others.
pub(super) const LOADING: &[&str] = &[
    "num_ctx",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "use_mmap",
    "use_mlock",
    "low_vram",
    "vocab_only",
    "numa",
    "f16_kv",
    "logits_all",
    "embedding_only",
    "draft_num_predict",
];

/// Why one of them is not sent.
const GATED: &str = "may not be set by clients here";

impl<'a> Encoding<'a> {
    pub(super) fn ollama(&mut self) -> Result<String, Cannot> {
        let talk = self.talk;
        let own = matches!(talk.client, Dialect::OllamaChat | Dialect::OllamaGenerate);
        self.out.open(b'{');
        self.out.text("model", self.terms.model);
        self.out.member("messages").open(b'[');
        for turn in &talk.turns {
            self.ollama_turn(turn)?;
        }
        self.out.close(b']');
        self.out.member("stream").bool(talk.stream);
        self.ollama_tools()?;
        match &talk.format {
            Format::Text => {}
            Format::Json => self.out.text("format", "json"),
            Format::Schema { schema, .. } => self.out.member("format").json(schema),
        }
        // Words for how hard are gpt-oss's; with others they are refused.
        let word = match talk.thinking.hard() {
            Some(Effort::Minimal | Effort::Low) => Some("low"),
            Some(Effort::Medium) => Some("medium"),
            Some(Effort::High | Effort::Higher | Effort::Max) => Some("high"),
            None => None,
        };
        match (talk.thinking.on, word) {
            (Some(true) | None, Some(word)) if self.terms.model.contains("gpt-oss") => {
                self.out.text("think", word);
            }
            (Some(on), _) => self.out.member("think").bool(on),
            (None, _) => {}
        }
        if let Some(count) = talk.logprobs {
            self.out.member("logprobs").bool(true);
            if count > 0 {
                self.out.member("top_logprobs").count(count);
            }
        }
        if talk.logit_bias.is_some() {
            self.lack("logit_bias", super::NO_KNOB)?;
        }
        if talk.user.is_some() {
            self.note("user", "has no place in this protocol");
        }
        match &talk.keep_alive {
            Some(keep) if self.terms.loading => self.out.member("keep_alive").json(keep),
            Some(_) => self.note("keep_alive", GATED),
            None => {}
        }
        self.ollama_options(own)?;
        // Of another endpoint's members one may have a name that stands here already.
        let extras = talk.client == Dialect::OllamaChat;
        if extras {
            for (key, value) in &talk.extras {
                self.out.member(key).json(value);
            }
        }
        self.leftovers(extras, own)?;
        self.out.close(b'}');
        Ok("/api/chat".to_owned())
    }

    fn ollama_options(&mut self, own: bool) -> Result<(), Cannot> {
        let talk = self.talk;
        self.out.member("options").open(b'{');
        self.knobs(knob)?;
        if let Some(limit) = talk.max_tokens {
            self.out.member("num_predict").count(limit);
        }
        if !talk.stop.is_empty() {
            self.out.member("stop").strings(talk.stop.iter());
        }
        for (key, value) in talk.options.iter().filter(|_| own) {
            if LOADING.contains(&key.as_str()) && !self.terms.loading {
                self.note(format!("options.{key}"), GATED);
            } else {
                self.out.member(key).json(value);
            }
        }
        self.out.close(b'}');
        Ok(())
    }

    fn ollama_tools(&mut self) -> Result<(), Cannot> {
        let mut tools = self.tools()?;
        if tools.is_empty() {
            return Ok(());
        }
        match self.choice {
            ToolChoice::Unsaid | ToolChoice::Auto => {}
            // It has no such word; without tools none is called.
            ToolChoice::None => return Ok(()),
            ToolChoice::Required => self.lack("tool_choice", super::NO_KNOB)?,
            ToolChoice::Named(name) => {
                self.lack("tool_choice", super::NO_KNOB)?;
                tools.retain(|tool| tool.name == *name);
            }
        }
        if self.talk.parallel == Some(false) {
            self.lack("parallel_tool_calls", super::NO_KNOB)?;
        }
        self.out.member("tools").open(b'[');
        for tool in tools {
            self.function_tool(tool, false);
        }
        self.out.close(b']');
        Ok(())
    }

    fn ollama_turn(&mut self, turn: &'a Turn) -> Result<(), Cannot> {
        let role = match turn.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => {
                for part in &turn.parts {
                    let Part::Result(outcome) = part else { continue };
                    self.out.open(b'{');
                    self.out.text("role", "tool");
                    self.out.text("content", &outcome_words(outcome));
                    self.out.text("tool_name", &outcome.name);
                    let id = self.id(&outcome.id);
                    self.out.text("tool_call_id", &id);
                    self.out.close(b'}');
                }
                for (tool, medium) in attachments(&turn.parts) {
                    let text = self.text_document(medium)?.unwrap_or_default();
                    self.out.open(b'{');
                    self.out.text("role", "user");
                    self.out.text("content", &format!("From the result of the tool `{tool}`:\n{text}"));
                    self.ollama_images(std::iter::once(medium))?;
                    self.out.close(b'}');
                }
                return Ok(());
            }
        };
        self.out.open(b'{');
        self.out.text("role", role);
        let mut content = words(&turn.parts).into_owned();
        for part in &turn.parts {
            if let Part::Media(medium) = part
                && let Some(text) = self.text_document(medium)?
            {
                content.push('\n');
                content.push_str(&text);
            }
        }
        self.out.text("content", &content);
        let thoughts = turn.parts.iter().filter_map(|part| match part {
            Part::Thought(thought) if !thought.text.is_empty() => Some(thought.text.as_str()),
            _ => None,
        });
        let thought = thoughts.collect::<Vec<_>>().join("\n");
        if !thought.is_empty() {
            self.out.text("thinking", &thought);
        }
        self.ollama_images(turn.parts.iter().filter_map(|part| match part {
            Part::Media(medium) => Some(medium),
            _ => None,
        }))?;
        let mut any = false;
        for part in &turn.parts {
            let Part::Call(call) = part else { continue };
            if !any {
                self.out.member("tool_calls").open(b'[');
                any = true;
            }
            self.out.open(b'{');
            let id = self.id(&call.id);
            self.out.text("id", &id);
            self.out.member("function").open(b'{');
            self.out.text("name", &call.name);
            self.out.member("arguments").arguments(&call.arguments, call.object);
            self.out.close(b'}');
            self.out.close(b'}');
        }
        if any {
            self.out.close(b']');
        }
        self.out.close(b'}');
        Ok(())
    }

    /// A document that is words.
    fn text_document(&self, medium: &'a Media) -> Result<Option<String>, Cannot> {
        if medium.kind != MediaKind::Document {
            return Ok(None);
        }
        match self.sent(medium, false, false)? {
            Sent::Data(media_type, base64) if media_type.starts_with("text/") => {
                media::text(&base64).map(Some).ok_or_else(|| refuse(medium, "a text that is not in UTF-8"))
            }
            _ => Err(refuse(medium, "a document")),
        }
    }

    fn ollama_images(&mut self, media: impl Iterator<Item = &'a Media>) -> Result<(), Cannot> {
        let mut any = false;
        for medium in media {
            match (medium.kind, self.sent(medium, false, false)?) {
                (MediaKind::Image, Sent::Data(_, base64)) => {
                    if !any {
                        self.out.member("images").open(b'[');
                        any = true;
                    }
                    self.out.plain(&[], &base64);
                }
                // Among the words already.
                (MediaKind::Document, Sent::Data(media_type, _)) if media_type.starts_with("text/") => {}
                (MediaKind::Document, _) => return Err(refuse(medium, "a document")),
                _ => return Err(refuse(medium, "a sound")),
            }
        }
        if any {
            self.out.close(b']');
        }
        Ok(())
    }
}

fn knob(_: Flavor, knob: Knob) -> Option<&'static str> {
    Some(knob.name())
}
