//! To Gemini's `generateContent`.

use super::super::models::{self, Generation};
use super::super::{
    Cannot, Effort, Flavor, Format, Knob, Media, MediaKind, Outcome, Part, Role, Tool, ToolChoice, Turn,
    media,
};
use super::{Encoding, FILLER, Json, NO_KNOB, Sent, refuse, words};
use crate::limits;

/// From here on a call in the history must bear a signature, thinking has levels, and JSON goes with tools.
const SIGNED: Generation = (3, 0);
/// From here on a model can think.
const THINKS: Generation = (2, 5);
/// Stands for the signature of a call that another model made (Google's page on thought signatures).
const UNSIGNED: &str = "skip_thought_signature_validator";

impl<'a> Encoding<'a> {
    pub(super) fn gemini(&mut self) -> Result<String, Cannot> {
        let talk = self.talk;
        let generation = models::gemini(self.terms.model);
        let signed = generation.is_none_or(|it| it >= SIGNED);
        self.out.open(b'{');
        self.gemini_system();
        self.gemini_contents(signed)?;
        let tools = self.tools()?;
        if !tools.is_empty() {
            self.gemini_tools(&tools)?;
        }
        self.out.member("generationConfig").open(b'{');
        self.gemini_sampling()?;
        self.gemini_format(signed || tools.is_empty())?;
        self.gemini_thinking(generation)?;
        self.out.close(b'}');
        if talk.user.is_some() {
            self.note("user", "has no place in this protocol");
        }
        if talk.logit_bias.is_some() {
            self.lack("logit_bias", NO_KNOB)?;
        }
        self.leftovers(false, false)?;
        self.out.close(b'}');
        let model = self.terms.model.strip_prefix("models/").unwrap_or(self.terms.model);
        let ask = if talk.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
        Ok(format!("/v1beta/models/{}:{ask}", segment(model)))
    }

    /// All instructions, wherever they stood: it has one place for them.
    fn gemini_system(&mut self) {
        let system = self.talk.turns.iter().filter(|turn| turn.role == Role::System);
        let texts = system.flat_map(|turn| &turn.parts).filter_map(|part| match part {
            Part::Text(text) if !text.is_empty() => Some(text.as_str()),
            _ => None,
        });
        let texts: Vec<&str> = texts.collect();
        if texts.is_empty() {
            return;
        }
        self.out.member("systemInstruction").open(b'{');
        self.out.member("parts").open(b'[');
        for text in texts {
            self.gemini_text(text);
        }
        self.gemini_close();
    }

    fn gemini_text(&mut self, text: &str) {
        self.out.open(b'{');
        self.out.text("text", text);
        self.out.close(b'}');
    }

    fn gemini_open(&mut self, role: &str) {
        self.out.open(b'{');
        self.out.text("role", role);
        self.out.member("parts").open(b'[');
    }

    fn gemini_close(&mut self) {
        self.out.close(b']');
        self.out.close(b'}');
    }

    /// `user` and `model` take turns, the user begins, and nothing is empty.
    fn gemini_contents(&mut self, signed: bool) -> Result<(), Cannot> {
        self.out.member("contents").open(b'[');
        let mut open = "";
        for turn in &self.talk.turns {
            let role = match turn.role {
                Role::System => continue,
                Role::User | Role::Tool => "user",
                Role::Assistant => "model",
            };
            let says = turn.parts.iter().any(|part| match part {
                Part::Text(text) | Part::Refusal(text) => !text.is_empty(),
                Part::Thought(_) => false,
                Part::Media(_) | Part::Call(_) | Part::Result(_) => true,
            });
            if !says {
                continue;
            }
            if open.is_empty() && role == "model" {
                self.gemini_open("user");
                self.gemini_text(FILLER);
                open = "user";
            }
            if open != role {
                if !open.is_empty() {
                    self.gemini_close();
                }
                self.gemini_open(role);
                open = role;
            }
            self.gemini_turn(turn, signed)?;
        }
        if open.is_empty() || (open == "model" && self.talk.asks()) {
            if !open.is_empty() {
                self.gemini_close();
            }
            self.gemini_open("user");
            self.gemini_text(FILLER);
        }
        self.gemini_close();
        self.out.close(b']');
        Ok(())
    }

    fn gemini_turn(&mut self, turn: &'a Turn, signed: bool) -> Result<(), Cannot> {
        let mut first = true;
        for part in &turn.parts {
            match part {
                Part::Text(text) | Part::Refusal(text) if text.is_empty() => {}
                Part::Text(text) | Part::Refusal(text) => self.gemini_text(text),
                Part::Media(medium) => self.gemini_media(medium)?,
                // Its own thoughts come back as signatures, those of others are not asked for.
                Part::Thought(_) => {}
                Part::Call(call) => {
                    self.out.open(b'{');
                    self.out.member("functionCall").open(b'{');
                    let id = self.id(&call.id);
                    self.out.text("id", &id);
                    self.out.text("name", &call.name);
                    self.out.member("args").arguments(&call.arguments, call.object);
                    self.out.close(b'}');
                    // Of calls beside each other the first one bears it.
                    match &call.signature {
                        Some(signature) => self.out.text("thoughtSignature", signature),
                        None if first && signed => self.out.text("thoughtSignature", UNSIGNED),
                        None => {}
                    }
                    first = false;
                    self.out.close(b'}');
                }
                Part::Result(outcome) => self.gemini_result(outcome, signed)?,
            }
        }
        if !signed {
            for (_, medium) in super::attachments(&turn.parts) {
                self.gemini_media(medium)?;
            }
        }
        Ok(())
    }

    fn gemini_result(&mut self, outcome: &'a Outcome, signed: bool) -> Result<(), Cannot> {
        self.out.open(b'{');
        self.out.member("functionResponse").open(b'{');
        let id = self.id(&outcome.id);
        self.out.text("id", &id);
        self.out.text("name", &outcome.name);
        self.out.member("response").open(b'{');
        self.out.text(if outcome.error { "error" } else { "output" }, &words(&outcome.parts));
        self.out.close(b'}');
        // Gemini 3 takes pictures in a result, earlier ones beside it.
        if signed && outcome.parts.iter().any(|part| matches!(part, Part::Media(_))) {
            self.out.member("parts").open(b'[');
            for part in &outcome.parts {
                if let Part::Media(medium) = part {
                    self.gemini_media(medium)?;
                }
            }
            self.out.close(b']');
        }
        self.out.close(b'}');
        self.out.close(b'}');
        Ok(())
    }

    fn gemini_media(&mut self, medium: &'a Media) -> Result<(), Cannot> {
        let guessed = match &medium.source {
            super::Source::Url(url) => by_extension(url),
            super::Source::Data { .. } | super::Source::File(_) => None,
        };
        match self.sent(medium, guessed.is_some(), false)? {
            Sent::Data(media_type, base64) => {
                if media_type.as_ref() == media::UNKNOWN {
                    let what = match medium.kind {
                        MediaKind::Image => "an image of unknown type",
                        MediaKind::Document => "a document of unknown type",
                        MediaKind::Audio => "a sound of unknown type",
                    };
                    return Err(refuse(medium, what));
                }
                self.out.open(b'{');
                self.out.member("inlineData").open(b'{');
                self.out.text("mimeType", &media_type);
                self.out.member("data").plain(&[], &base64);
            }
            Sent::Url(url) | Sent::File(url) => {
                self.out.open(b'{');
                self.out.member("fileData").open(b'{');
                self.out.text("mimeType", guessed.unwrap_or(media::UNKNOWN));
                self.out.text("fileUri", url);
            }
        }
        self.out.close(b'}');
        self.out.close(b'}');
        Ok(())
    }

    fn gemini_tools(&mut self, tools: &[&Tool]) -> Result<(), Cannot> {
        self.out.member("tools").open(b'[');
        self.out.open(b'{');
        self.out.member("functionDeclarations").open(b'[');
        for tool in tools {
            self.out.open(b'{');
            self.out.text("name", &tool.name);
            self.out.text("description", tool.description.as_deref().unwrap_or_default());
            // Without a parameter there is none: an object without properties is refused.
            let some =
                |it: &&Json| matches!(it.get("properties"), Some(Json::Object(all)) if !all.is_empty());
            if let Some(parameters) = tool.parameters.as_ref().filter(some) {
                self.out.member("parametersJsonSchema").json(parameters);
            }
            self.out.close(b'}');
        }
        self.out.close(b']');
        self.out.close(b'}');
        self.out.close(b']');
        if self.talk.parallel == Some(false) {
            self.lack("parallel_tool_calls", NO_KNOB)?;
        }
        let mode = match &self.talk.choice {
            ToolChoice::Unsaid => return Ok(()),
            ToolChoice::Auto => "AUTO",
            ToolChoice::None => "NONE",
            ToolChoice::Required | ToolChoice::Named(_) => "ANY",
        };
        self.out.member("toolConfig").open(b'{');
        self.out.member("functionCallingConfig").open(b'{');
        self.out.text("mode", mode);
        if let ToolChoice::Named(name) = &self.talk.choice {
            self.out.member("allowedFunctionNames").strings(std::iter::once(name));
        }
        self.out.close(b'}');
        self.out.close(b'}');
        Ok(())
    }

    fn gemini_sampling(&mut self) -> Result<(), Cannot> {
        let talk = self.talk;
        let seed = talk.knob(Knob::Seed);
        if seed.is_some_and(|seed| seed.as_i64().is_none_or(|seed| i32::try_from(seed).is_err())) {
            self.lack("seed", "is beyond 32 bits")?;
        } else if let Some(seed) = seed {
            self.out.member("seed").number(seed);
        }
        for (knob, number) in talk.sampling.iter().filter(|(knob, _)| *knob != Knob::Seed) {
            match self::knob(Flavor::Other, *knob) {
                Some(name) => self.out.member(name).number(number),
                None => self.lack(knob.name(), NO_KNOB)?,
            }
        }
        if let Some(limit) = talk.max_tokens {
            self.out.member("maxOutputTokens").count(limit);
        }
        if talk.stop.len() > limits::GEMINI_STOPS_MAX {
            self.lack("stop", "has more sequences than this target takes")?;
        }
        if !talk.stop.is_empty() {
            self.out.member("stopSequences").strings(talk.stop.iter().take(limits::GEMINI_STOPS_MAX));
        }
        if talk.choices > 1 {
            self.out.member("candidateCount").count(talk.choices.into());
        }
        if let Some(count) = talk.logprobs {
            self.out.member("responseLogprobs").bool(true);
            if count > 0 {
                self.out.member("logprobs").count(count);
            }
        }
        Ok(())
    }

    fn gemini_format(&mut self, can: bool) -> Result<(), Cannot> {
        let schema = match &self.talk.format {
            Format::Text => return Ok(()),
            Format::Json => None,
            Format::Schema { schema, .. } => Some(schema),
        };
        if !can {
            return self.lack("response_format", "excludes tools, at this model");
        }
        self.out.text("responseMimeType", "application/json");
        if let Some(schema) = schema {
            self.out.member("responseJsonSchema").json(schema);
        }
        Ok(())
    }

    fn gemini_thinking(&mut self, generation: Option<Generation>) -> Result<(), Cannot> {
        let thinking = self.talk.thinking;
        let (Some(on), Some(generation)) = (thinking.on.or(thinking.effort.map(|_| true)), generation) else {
            return Ok(());
        };
        if generation < THINKS {
            return if on {
                self.lack("thinking", "is nothing for a model that does not think")
            } else {
                Ok(())
            };
        }
        self.out.member("thinkingConfig").open(b'{');
        let pro = self.terms.model.contains("pro");
        if generation >= SIGNED {
            // It cannot be turned off, and Pro has two levels in its first version.
            let level = match (on, thinking.hard()) {
                (false, _) | (true, Some(Effort::Minimal)) => Some(if pro { "low" } else { "minimal" }),
                (true, Some(Effort::Low)) => Some("low"),
                (true, Some(Effort::Medium)) => {
                    Some(if pro && generation < (3, 1) { "high" } else { "medium" })
                }
                (true, Some(Effort::High | Effort::Higher | Effort::Max)) => Some("high"),
                (true, None) => None,
            };
            if let Some(level) = level {
                self.out.text("thinkingLevel", level);
            }
        } else if !on {
            // 2.5 Pro thinks a little, always.
            self.out.member("thinkingBudget").count(if pro { 128 } else { 0 });
        } else if thinking.effort.is_some() || thinking.budget.is_some() {
            self.out.member("thinkingBudget").count(thinking.tokens().clamp(512, 24_576));
        }
        if on {
            self.out.member("includeThoughts").bool(true);
        }
        self.out.close(b'}');
        Ok(())
    }
}

fn knob(_: Flavor, knob: Knob) -> Option<&'static str> {
    match knob {
        Knob::Temperature => Some("temperature"),
        Knob::TopP => Some("topP"),
        Knob::TopK => Some("topK"),
        Knob::FrequencyPenalty => Some("frequencyPenalty"),
        Knob::PresencePenalty => Some("presencePenalty"),
        Knob::Seed => Some("seed"),
        Knob::MinP | Knob::RepeatPenalty => None,
    }
}

/// A model's name as one segment of a path.
fn segment(name: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(char::from(byte)),
            // To a string nothing fails.
            _ => {
                let _written = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// The MIME type that a URL's end tells.
fn by_extension(url: &str) -> Option<&'static str> {
    let path = url.split(['?', '#']).next()?;
    let (_, extension) = path.rsplit_once('.')?;
    match extension.to_ascii_lowercase().as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "webp" => Some("image/webp"),
        "pdf" => Some("application/pdf"),
        _ => None,
    }
}
