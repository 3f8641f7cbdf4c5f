//! To OpenAI's Chat Completions: OpenAI itself, vLLM, llama.cpp and others.

use super::super::{
    Cannot, Effort, Flavor, Format, Knob, Media, MediaKind, Part, Role, Tool, ToolChoice, Turn, media, models,
};
use super::{Encoding, Json, NO_KNOB, Sent, attachments, outcome_words, refuse, words};
use crate::dialect::Dialect;
use crate::limits;

/// Documents beyond texts.
const NO_DOCUMENT: &str = "a document";

impl<'a> Encoding<'a> {
    pub(super) fn openai(&mut self) -> Result<String, Cannot> {
        let (talk, flavor) = (self.talk, self.terms.flavor);
        self.out.open(b'{');
        self.out.text("model", self.terms.model);
        self.out.member("messages").open(b'[');
        // What a model thought counts while it works on the user's last request, and for DeepSeek it must be there.
        let asked = talk.turns.iter().rposition(|turn| turn.role == Role::User).unwrap_or(0);
        for (at, turn) in talk.turns.iter().enumerate() {
            self.openai_turn(turn, at > asked)?;
        }
        self.out.close(b']');
        if talk.stream {
            self.out.member("stream").bool(true);
            if talk.wants_usage || self.terms.ask_usage {
                self.out.member("stream_options").raw("{\"include_usage\":true}");
            }
        }
        let tools = self.tools()?;
        if !tools.is_empty() {
            self.openai_tools(&tools);
        }
        self.openai_format();
        self.openai_sampling()?;
        self.openai_thinking()?;
        if talk.choices > 1 {
            self.out.member("n").count(talk.choices.into());
        }
        if let Some(user) = &talk.user {
            self.out.text("user", user);
        }
        let begun = talk.turns.last().is_some_and(|turn| {
            turn.role == Role::Assistant && turn.parts.iter().all(|part| matches!(part, Part::Text(_)))
        });
        let own = |key: &str| talk.extras.iter().any(|(extra, _)| extra == key);
        if flavor == Flavor::Vllm && begun && !own("continue_final_message") && !own("add_generation_prompt")
        {
            // llama.cpp goes on with the assistant's words by itself.
            self.out.member("add_generation_prompt").bool(false);
            self.out.member("continue_final_message").bool(true);
        }
        // Of another endpoint's members one may have a name that stands here already.
        let extras = talk.client == Dialect::OpenaiChat && matches!(flavor, Flavor::Vllm | Flavor::Llamacpp);
        if extras {
            for (key, value) in &talk.extras {
                if key != "chat_template_kwargs" {
                    self.out.member(key).json(value);
                }
            }
        }
        self.leftovers(extras, false)?;
        self.out.close(b'}');
        Ok("/v1/chat/completions".to_owned())
    }

    fn openai_turn(&mut self, turn: &'a Turn, thoughts: bool) -> Result<(), Cannot> {
        match turn.role {
            Role::System => {
                self.out.open(b'{');
                self.out.text("role", "system");
                self.out.text("content", &words(&turn.parts));
                self.out.close(b'}');
            }
            Role::User => {
                self.out.open(b'{');
                self.out.text("role", "user");
                self.out.member("content");
                self.openai_content(&turn.parts)?;
                self.out.close(b'}');
            }
            Role::Assistant => self.openai_assistant(turn, thoughts)?,
            Role::Tool => {
                for part in &turn.parts {
                    let Part::Result(outcome) = part else { continue };
                    self.out.open(b'{');
                    self.out.text("role", "tool");
                    let id = self.id(&outcome.id);
                    self.out.text("tool_call_id", &id);
                    self.out.text("content", &outcome_words(outcome));
                    self.out.close(b'}');
                }
                self.openai_attachments(turn)?;
            }
        }
        Ok(())
    }

    /// A tool's message takes words alone: pictures follow as the user's.
    fn openai_attachments(&mut self, turn: &'a Turn) -> Result<(), Cannot> {
        if attachments(&turn.parts).next().is_none() {
            return Ok(());
        }
        self.out.open(b'{');
        self.out.text("role", "user");
        self.out.member("content").open(b'[');
        for (tool, medium) in attachments(&turn.parts) {
            self.openai_text(&format!("From the result of the tool `{tool}`:"));
            self.openai_media(medium)?;
        }
        self.out.close(b']');
        self.out.close(b'}');
        Ok(())
    }

    fn openai_content(&mut self, parts: &'a [Part]) -> Result<(), Cannot> {
        // Words alone in a string: some servers take no array (DeepSeek), others join it as they like.
        if !parts.iter().any(|part| matches!(part, Part::Media(_))) {
            self.out.string(&words(parts));
            return Ok(());
        }
        self.out.open(b'[');
        for part in parts {
            match part {
                Part::Text(text) | Part::Refusal(text) => self.openai_text(text),
                Part::Media(medium) => self.openai_media(medium)?,
                Part::Thought(_) | Part::Call(_) | Part::Result(_) => {}
            }
        }
        self.out.close(b']');
        Ok(())
    }

    fn openai_text(&mut self, text: &str) {
        self.out.open(b'{');
        self.out.text("type", "text");
        self.out.text("text", text);
        self.out.close(b'}');
    }

    fn openai_media(&mut self, medium: &'a Media) -> Result<(), Cannot> {
        let openai = self.terms.flavor == Flavor::Openai;
        let image = medium.kind == MediaKind::Image;
        let sent = self.sent(medium, image, openai && !image)?;
        match (medium.kind, sent) {
            (MediaKind::Image, sent) => {
                self.out.open(b'{');
                self.out.text("type", "image_url");
                self.out.member("image_url").open(b'{');
                match sent {
                    Sent::Data(media_type, base64) => {
                        self.out.member("url").plain(&["data:", &media_type, ";base64,"], &base64);
                    }
                    Sent::Url(url) | Sent::File(url) => self.out.text("url", url),
                }
                if let Some(detail) = &medium.detail {
                    self.out.text("detail", detail);
                }
                self.out.close(b'}');
                self.out.close(b'}');
            }
            (MediaKind::Audio, Sent::Data(media_type, base64)) => {
                self.out.open(b'{');
                self.out.text("type", "input_audio");
                self.out.member("input_audio").open(b'{');
                self.out.member("data").plain(&[], &base64);
                let format = media_type.rsplit('/').next().unwrap_or_default();
                self.out.text("format", if format == "mpeg" { "mp3" } else { format });
                self.out.close(b'}');
                self.out.close(b'}');
            }
            (MediaKind::Document, Sent::Data(media_type, base64)) if media_type.starts_with("text/") => {
                match media::text(&base64) {
                    Some(text) => self.openai_text(&text),
                    None => return Err(refuse(medium, "a text that is not in UTF-8")),
                }
            }
            (MediaKind::Document, sent) if openai => {
                self.out.open(b'{');
                self.out.text("type", "file");
                self.out.member("file").open(b'{');
                match sent {
                    Sent::Data(media_type, base64) => {
                        self.out.text("filename", medium.name.as_deref().unwrap_or("document"));
                        let head = ["data:", &media_type, ";base64,"];
                        self.out.member("file_data").plain(&head, &base64);
                    }
                    Sent::Url(id) | Sent::File(id) => self.out.text("file_id", id),
                }
                self.out.close(b'}');
                self.out.close(b'}');
            }
            (MediaKind::Document, _) => return Err(refuse(medium, NO_DOCUMENT)),
            (MediaKind::Audio, _) => return Err(refuse(medium, "a sound")),
        }
        Ok(())
    }

    fn openai_assistant(&mut self, turn: &'a Turn, thoughts: bool) -> Result<(), Cannot> {
        let openai = self.terms.flavor == Flavor::Openai;
        self.out.open(b'{');
        self.out.text("role", "assistant");
        // Not null: templates add it to other texts.
        self.out.text("content", &words(&turn.parts));
        if thoughts && !openai {
            let texts = turn.parts.iter().filter_map(|part| match part {
                Part::Thought(thought) if !thought.text.is_empty() => Some(thought.text.as_str()),
                _ => None,
            });
            let thought = texts.collect::<Vec<_>>().join("\n");
            if !thought.is_empty() {
                self.out.text("reasoning_content", &thought);
            }
        }
        let mut any = false;
        for part in &turn.parts {
            match part {
                Part::Call(call) => {
                    if !any {
                        self.out.member("tool_calls").open(b'[');
                        any = true;
                    }
                    self.out.open(b'{');
                    let id = self.id(&call.id);
                    self.out.text("id", &id);
                    self.out.text("type", "function");
                    self.out.member("function").open(b'{');
                    self.out.text("name", &call.name);
                    self.out.text("arguments", &call.arguments);
                    self.out.close(b'}');
                    if let Some(signature) = call.signature.as_ref().filter(|_| !openai) {
                        self.out.member("extra_content").open(b'{');
                        self.out.member("google").open(b'{');
                        self.out.text("thought_signature", signature);
                        self.out.close(b'}');
                        self.out.close(b'}');
                    }
                    self.out.close(b'}');
                }
                Part::Media(medium) => return Err(refuse(medium, "in a message of the assistant")),
                Part::Text(_) | Part::Refusal(_) | Part::Thought(_) | Part::Result(_) => {}
            }
        }
        if any {
            self.out.close(b']');
        }
        self.out.close(b'}');
        Ok(())
    }

    fn openai_tools(&mut self, tools: &[&Tool]) {
        self.out.member("tools").open(b'[');
        for tool in tools {
            self.function_tool(tool, self.terms.flavor == Flavor::Openai);
        }
        self.out.close(b']');
        match self.choice {
            ToolChoice::Unsaid => {}
            ToolChoice::Auto => self.out.text("tool_choice", "auto"),
            ToolChoice::None => self.out.text("tool_choice", "none"),
            ToolChoice::Required => self.out.text("tool_choice", "required"),
            ToolChoice::Named(name) => {
                self.out.member("tool_choice").open(b'{');
                self.out.text("type", "function");
                self.out.member("function").open(b'{');
                self.out.text("name", name);
                self.out.close(b'}');
                self.out.close(b'}');
            }
        }
        if let Some(parallel) = self.talk.parallel {
            self.out.member("parallel_tool_calls").bool(parallel);
        }
    }

    /// A tool as OpenAI and Ollama write it.
    pub(super) fn function_tool(&mut self, tool: &Tool, strict: bool) {
        self.out.open(b'{');
        self.out.text("type", "function");
        self.out.member("function").open(b'{');
        self.out.text("name", &tool.name);
        if let Some(description) = &tool.description {
            self.out.text("description", description);
        }
        match &tool.parameters {
            Some(parameters) => self.out.member("parameters").json(parameters),
            None => self.out.member("parameters").raw("{\"type\":\"object\",\"properties\":{}}"),
        }
        if let Some(keep) = tool.strict.filter(|_| strict) {
            self.out.member("strict").bool(keep);
        }
        self.out.close(b'}');
        self.out.close(b'}');
    }

    fn openai_format(&mut self) {
        match &self.talk.format {
            Format::Text => {}
            Format::Json => self.out.member("response_format").raw("{\"type\":\"json_object\"}"),
            Format::Schema { name, description, schema, strict } => {
                self.out.member("response_format").open(b'{');
                self.out.text("type", "json_schema");
                self.out.member("json_schema").open(b'{');
                self.out.text("name", name.as_deref().unwrap_or("answer"));
                if let Some(description) = description {
                    self.out.text("description", description);
                }
                if let Some(strict) = strict {
                    self.out.member("strict").bool(*strict);
                }
                self.out.member("schema").json(schema);
                self.out.close(b'}');
                self.out.close(b'}');
            }
        }
    }

    fn openai_sampling(&mut self) -> Result<(), Cannot> {
        let (talk, flavor) = (self.talk, self.terms.flavor);
        let openai = flavor == Flavor::Openai;
        let thinks = openai && models::openai_thinks(self.terms.model);
        self.knobs(if thinks { thinking_knob } else { knob })?;
        if let Some(limit) = talk.max_tokens {
            self.out.member(if openai { "max_completion_tokens" } else { "max_tokens" }).count(limit);
        }
        let most = if openai { limits::OPENAI_STOPS_MAX } else { usize::MAX };
        if thinks && !talk.stop.is_empty() {
            self.lack("stop", NO_KNOB)?;
        } else if !talk.stop.is_empty() {
            if talk.stop.len() > most {
                self.lack("stop", "has more sequences than this target takes")?;
            }
            self.out.member("stop").strings(talk.stop.iter().take(most));
        }
        match talk.logprobs {
            Some(_) if thinks => self.lack("logprobs", NO_KNOB)?,
            Some(count) => {
                self.out.member("logprobs").bool(true);
                if count > 0 {
                    self.out.member("top_logprobs").count(count);
                }
            }
            None => {}
        }
        match &talk.logit_bias {
            // Of another model's tokens it says nothing.
            Some(_) if talk.model != self.terms.model => {
                self.lack("logit_bias", "is of another model's tokens")?
            }
            Some(bias) => self.out.member("logit_bias").json(bias),
            None => {}
        }
        Ok(())
    }

    fn openai_thinking(&mut self) -> Result<(), Cannot> {
        let (thinking, flavor) = (self.talk.thinking, self.terms.flavor);
        let thinks = flavor != Flavor::Openai || models::openai_thinks(self.terms.model);
        let generation = models::gpt(self.terms.model).filter(|_| flavor == Flavor::Openai);
        let first = generation == Some((5, 0));
        let word = match (thinking.on, thinking.hard()) {
            // GPT-5 cannot be kept from thinking, nor can the o-series.
            (Some(false), _) if first => Some("minimal"),
            (Some(false), _) if thinks && flavor == Flavor::Openai && generation.is_none() => Some("low"),
            (Some(false), _) => Some("none"),
            (_, Some(Effort::Minimal)) if first => Some("minimal"),
            (_, Some(Effort::Minimal | Effort::Low)) => Some("low"),
            (_, Some(Effort::Medium)) => Some("medium"),
            (_, Some(Effort::Higher | Effort::Max)) if generation >= Some((5, 2)) => Some("xhigh"),
            (_, Some(Effort::High | Effort::Higher | Effort::Max)) => Some("high"),
            (_, None) => None,
        };
        let mut switch = None;
        match (flavor, word) {
            (_, Some("none")) if !thinks => {}
            (_, Some(_)) if !thinks => {
                self.lack("reasoning_effort", "is nothing for a model that does not think")?
            }
            // Templates of local models have a switch (Qwen, DeepSeek, GLM), those of gpt-oss a word.
            (Flavor::Vllm | Flavor::Llamacpp, Some("none")) => switch = Some(false),
            (_, Some(word)) => self.out.text("reasoning_effort", word),
            (_, None) => {}
        }
        if matches!(flavor, Flavor::Vllm | Flavor::Llamacpp) {
            switch = switch.or(thinking.on);
            let own = self.talk.extras.iter().find(|(key, _)| key == "chat_template_kwargs");
            if switch.is_some() || own.is_some() {
                self.out.member("chat_template_kwargs").open(b'{');
                if let Some(on) = switch {
                    self.out.member("enable_thinking").bool(on);
                }
                if let Some((_, Json::Object(members))) = own {
                    for (key, value) in members {
                        self.out.member(key).json(value);
                    }
                }
                self.out.close(b'}');
            }
        }
        Ok(())
    }
}

fn knob(flavor: Flavor, knob: Knob) -> Option<&'static str> {
    match (knob, flavor) {
        (Knob::TopK | Knob::MinP | Knob::RepeatPenalty, Flavor::Openai | Flavor::Other) => None,
        (Knob::RepeatPenalty, Flavor::Vllm) => Some("repetition_penalty"),
        (knob, _) => Some(knob.name()),
    }
}

/// Of OpenAI's models that think.
fn thinking_knob(_: Flavor, knob: Knob) -> Option<&'static str> {
    matches!(knob, Knob::Seed).then_some("seed")
}
