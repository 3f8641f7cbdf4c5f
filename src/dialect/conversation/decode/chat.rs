//! OpenAI's Chat Completions, and the older Completions.

use super::super::json::{At, Json};
use super::super::media;
use super::super::words::short;
use super::super::{
    Call, Conversation, Knob, MediaKind, Part, Role, Source, Thinking, Thought, ToolChoice, Turn,
};
use super::{Fields, Turns, arguments, bound, effort, fields, format, function, knobs, texts, tools};
use crate::dialect::request::BadRequest;
use crate::limits;

/// OpenAI's names, those of vLLM and llama.cpp as well.
const KNOBS: &[(&str, Knob)] = &[
    ("temperature", Knob::Temperature),
    ("top_p", Knob::TopP),
    ("top_k", Knob::TopK),
    ("min_p", Knob::MinP),
    ("frequency_penalty", Knob::FrequencyPenalty),
    ("presence_penalty", Knob::PresencePenalty),
    ("repetition_penalty", Knob::RepeatPenalty),
    ("repeat_penalty", Knob::RepeatPenalty),
    ("seed", Knob::Seed),
];

/// What tells OpenAI how to serve, and nobody else anything.
const OPENAI_ONLY: &[&str] = &[
    "store",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "return_progress",
];

pub(super) fn chat(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    common(talk, fields)?;
    let here = fields.at;
    tools(talk, fields)?;
    let list = here.key("functions");
    for (index, tool) in fields.array("functions")?.into_iter().enumerate() {
        talk.tools.push(function(Fields::new(tool, list.index(index))?)?);
    }
    if let Some(choice) = fields.take("tool_choice") {
        talk.choice = tool_choice(choice, here.key("tool_choice"))?;
    }
    match fields.take("function_call") {
        None => {}
        Some(Json::String(word)) => talk.choice = choice_word(&word, &here.key("function_call"))?,
        Some(named) => {
            talk.choice = ToolChoice::Named(Fields::new(named, here.key("function_call"))?.text("name")?);
        }
    }
    talk.parallel = fields.bool("parallel_tool_calls")?;
    let at = here.key("response_format");
    if let Some(wanted) = fields.take("response_format") {
        talk.format = format(Fields::new(wanted, at)?)?;
    }
    if fields.bool("logprobs")? == Some(true) {
        talk.logprobs = Some(fields.count("top_logprobs")?.unwrap_or(0));
    } else {
        fields.skip(&["top_logprobs"]);
    }
    thinking(talk, fields)?;
    if fields.take("audio").is_some() {
        bound(talk, "an answer in sound");
    }
    match fields.take("modalities") {
        Some(Json::Array(items)) if items.iter().any(|item| item.as_str() != Some("text")) => {
            bound(talk, "an answer in sound");
        }
        _ => {}
    }
    let mut turns = Turns::new(false);
    let list = here.key("messages");
    let messages = fields.array("messages")?;
    if messages.is_empty() {
        return Err(list.bad("must have a message"));
    }
    for (index, one) in messages.into_iter().enumerate() {
        message(talk, &mut turns, Fields::new(one, list.index(index))?)?;
    }
    talk.turns = turns.end(&list)?;
    Ok(())
}

pub(super) fn completions(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    common(talk, fields)?;
    let here = fields.at;
    let at = here.key("prompt");
    let prompt = match fields.take("prompt") {
        None => String::new(),
        Some(Json::Array(items)) if items.iter().any(|item| item.as_str().is_none()) => {
            bound(talk, "a prompt in tokens");
            String::new()
        }
        Some(prompt) => {
            let mut prompts = texts(prompt, &at)?;
            if prompts.len() > 1 {
                bound(talk, "a request with several prompts");
            }
            prompts.pop().unwrap_or_default()
        }
    };
    if fields.string("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        bound(talk, "a completion before a suffix");
    }
    if fields.bool("echo")? == Some(true) {
        bound(talk, "a completion that repeats its prompt");
    }
    // How many are drawn to choose from; one answer is given.
    fields.skip(&["best_of"]);
    talk.logprobs = fields.count("logprobs")?;
    talk.turns.push(Turn { role: Role::User, parts: vec![Part::Text(prompt)] });
    Ok(())
}

/// What both have.
fn common(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    knobs(talk, fields, KNOBS)?;
    talk.max_tokens = fields.limit("max_completion_tokens")?;
    let older = fields.limit("max_tokens")?;
    talk.max_tokens = talk.max_tokens.or(older);
    let at = here.key("stop");
    talk.stop = fields.take("stop").map_or(Ok(Vec::new()), |stop| texts(stop, &at))?;
    talk.choices = match fields.count("n")?.unwrap_or(1).max(1) {
        count if count <= u64::from(limits::CHOICES_MAX) => count as u32,
        _ => return Err(here.key("n").bad(format_args!("must be at most {}", limits::CHOICES_MAX))),
    };
    talk.logit_bias = fields.object("logit_bias")?;
    talk.user = fields.string("user")?.or(fields.string("safety_identifier")?);
    talk.metadata = fields.object("metadata")?;
    let at = here.key("stream_options");
    if let Some(options) = fields.take("stream_options") {
        talk.wants_usage = Fields::new(options, at)?.bool("include_usage")?.unwrap_or(false);
    }
    fields.skip(OPENAI_ONLY);
    Ok(())
}

/// `reasoning_effort`, OpenRouter's `reasoning`, vLLM's `chat_template_kwargs.enable_thinking`.
fn thinking(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    if let Some(word) = fields.string("reasoning_effort")? {
        talk.thinking = effort(&word, &here.key("reasoning_effort"))?;
    }
    let at = here.key("reasoning");
    if let Some(reasoning) = fields.take("reasoning") {
        let mut reasoning = Fields::new(reasoning, at)?;
        if let Some(word) = reasoning.string("effort")? {
            talk.thinking = effort(&word, &at.key("effort"))?;
        }
        if let Some(budget) = reasoning.count("max_tokens")? {
            talk.thinking = Thinking { on: Some(true), budget: Some(budget), ..talk.thinking };
        }
        talk.thinking.on = reasoning.bool("enabled")?.or(talk.thinking.on);
    }
    let at = here.key("chat_template_kwargs");
    if let Some(arguments) = fields.object("chat_template_kwargs")? {
        if let Some(Json::Bool(on)) = arguments.get("enable_thinking") {
            talk.thinking.on = Some(*on);
        }
        if let Some(word) = arguments.get("reasoning_effort").and_then(Json::as_str) {
            talk.thinking = effort(word, &at.key("reasoning_effort"))?;
        }
        let rest = match arguments {
            Json::Object(mut members) => {
                members.retain(|(key, _)| key != "enable_thinking" && key != "reasoning_effort");
                members
            }
            _ => Vec::new(),
        };
        if !rest.is_empty() {
            talk.extras.push(("chat_template_kwargs".to_owned(), Json::Object(rest)));
        }
    }
    if talk.thinking.on == Some(false) {
        talk.thinking.effort = None;
    }
    Ok(())
}

pub(super) fn choice_word(word: &str, at: &At<'_>) -> Result<ToolChoice, BadRequest> {
    match word {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        _ => Err(at.bad("must be `auto`, `none`, `required` or an object")),
    }
}

fn tool_choice(choice: Json, at: At<'_>) -> Result<ToolChoice, BadRequest> {
    if let Json::String(word) = &choice {
        return choice_word(word, &at);
    }
    let mut fields = Fields::new(choice, at)?;
    let inner = at.key("function");
    match fields.take("function") {
        Some(named) => Ok(ToolChoice::Named(Fields::new(named, inner)?.text("name")?)),
        // `allowed_tools`: which of them may be called at all; the mode is kept.
        None => match fields.take("allowed_tools") {
            Some(allowed) => {
                let at = at.key("allowed_tools");
                let mode = Fields::new(allowed, at)?.text("mode")?;
                choice_word(&mode, &at.key("mode"))
            }
            None => Err(inner.bad("is missing")),
        },
    }
}

fn message(talk: &mut Conversation, turns: &mut Turns, mut fields: Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    let role = fields.text("role")?;
    match role.as_str() {
        "system" | "developer" => {
            let parts = fields::content(talk, &mut fields, "content", part)?;
            turns.say(&here, Role::System, parts)
        }
        "user" => {
            let parts = fields::content(talk, &mut fields, "content", part)?;
            if parts.is_empty() {
                return Err(here.key("content").bad("is missing"));
            }
            turns.say(&here, Role::User, parts)
        }
        "assistant" => {
            let parts = assistant(talk, &mut fields)?;
            turns.say(&here, Role::Assistant, parts)
        }
        "tool" => {
            let id = fields.text("tool_call_id")?;
            let parts = fields::content(talk, &mut fields, "content", part)?;
            turns.result(&here, Some(&id), None, parts, false)
        }
        "function" => {
            let name = fields.text("name")?;
            let parts = fields::content(talk, &mut fields, "content", part)?;
            turns.result(&here, None, Some(&name), parts, false)
        }
        _ => Err(here.key("role").bad(format_args!(
            "unknown role `{}`; known are `system`, `developer`, `user`, `assistant`, `tool`, `function`",
            short(&role)
        ))),
    }
}

fn assistant(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<Vec<Part>, BadRequest> {
    let here = fields.at;
    let mut parts = Vec::new();
    let told = fields.string("reasoning_content")?.or(fields.string("reasoning")?).unwrap_or_default();
    let mut thought = details(fields)?;
    if thought.text.is_empty() {
        thought.text = told;
    }
    let redacted = thought.redacted.take();
    if thought != Thought::default() {
        parts.push(Part::Thought(thought));
    }
    if redacted.is_some() {
        parts.push(Part::Thought(Thought { redacted, ..Thought::default() }));
    }
    parts.append(&mut fields::content(talk, fields, "content", part)?);
    if let Some(refusal) = fields.string("refusal")?.filter(|refusal| !refusal.is_empty()) {
        parts.push(Part::Refusal(refusal));
    }
    if fields.take("audio").is_some() {
        bound(talk, "an earlier answer in sound");
    }
    let list = here.key("tool_calls");
    for (index, call) in fields.array("tool_calls")?.into_iter().enumerate() {
        parts.push(tool_call(Fields::new(call, list.index(index))?)?);
    }
    let at = here.key("function_call");
    if let Some(call) = fields.take("function_call") {
        parts.push(called(Fields::new(call, at)?, String::new(), None)?);
    }
    Ok(parts)
}

/// OpenRouter's `reasoning_details`, which can hold a signature: one of Anthropic's is kept.
fn details(fields: &mut Fields<'_>) -> Result<Thought, BadRequest> {
    let here = fields.at;
    let list = here.key("reasoning_details");
    let mut thought = Thought::default();
    let mut signatures = 0;
    for (index, detail) in fields.array("reasoning_details")?.into_iter().enumerate() {
        let mut detail = Fields::new(detail, list.index(index))?;
        let format = detail.string("format")?;
        let anthropic = format.is_none_or(|format| format.starts_with("anthropic"));
        thought.text.push_str(&detail.string("text")?.unwrap_or_default());
        if anthropic {
            let signature = detail.string("signature")?.filter(|it| !it.is_empty());
            signatures += u32::from(signature.is_some());
            thought.signature = signature.or(thought.signature);
            thought.redacted = detail.string("data")?.or(thought.redacted);
        }
    }
    if signatures > 1 {
        // Of several thoughts, whose words are one text here: what is signed is not to be changed.
        thought.signature = None;
    }
    Ok(thought)
}

/// An element of `tool_calls`, Ollama's as well.
pub(super) fn tool_call(mut fields: Fields<'_>) -> Result<Part, BadRequest> {
    let here = fields.at;
    let id = fields.string("id")?.unwrap_or_default();
    // Google's OpenAI endpoint carries Gemini's signature so.
    let signature = fields
        .take("extra_content")
        .and_then(|extra| extra.get("google")?.get("thought_signature")?.as_str().map(str::to_owned));
    if let Some(custom) = fields.take("custom") {
        let mut custom = Fields::new(custom, here.key("custom"))?;
        let arguments = Json::Object(vec![("input".to_owned(), Json::String(custom.text("input")?))]).text();
        return Ok(Part::Call(Call { id, name: custom.text("name")?, arguments, object: true, signature }));
    }
    let at = here.key("function");
    let inner = fields.take("function").ok_or_else(|| at.bad("is missing"))?;
    called(Fields::new(inner, at)?, id, signature)
}

/// `{"name":…,"arguments":…}`.
fn called(mut fields: Fields<'_>, id: String, signature: Option<String>) -> Result<Part, BadRequest> {
    let name = fields.text("name")?;
    let (arguments, object) = arguments(fields.take("arguments"), &fields.at.key("arguments"))?;
    Ok(Part::Call(Call { id, name, arguments, object, signature }))
}

fn part(talk: &mut Conversation, mut fields: Fields<'_>) -> Result<Part, BadRequest> {
    let here = fields.at;
    let kind = fields.text("type")?;
    match kind.as_str() {
        "text" => Ok(Part::Text(fields.text("text")?)),
        "refusal" => Ok(Part::Refusal(fields.text("refusal")?)),
        "image_url" => {
            let at = here.key("image_url");
            let (url, detail, place) = match fields.shared("image_url").map(fields::long) {
                // Some clients leave the object out.
                Some(Ok(url)) => (url, None, at),
                Some(Err(object)) => {
                    let mut inner = Fields::new(object, at)?;
                    (inner.long_text("url")?, inner.string("detail")?, at.key("url"))
                }
                None => return Err(at.bad("is missing")),
            };
            let source = media::url(url, &place)?;
            let mut image = super::medium(MediaKind::Image, source, &here);
            image.detail = detail;
            Ok(Part::Media(image))
        }
        "input_audio" => {
            let at = here.key("input_audio");
            let mut inner = Fields::new(fields.take("input_audio").ok_or_else(|| at.bad("is missing"))?, at)?;
            let format = inner.text("format")?;
            let source =
                media::data(Some(format!("audio/{format}")), inner.long_text("data")?, &at.key("data"))?;
            Ok(Part::Media(super::medium(MediaKind::Audio, source, &here)))
        }
        "file" => {
            let at = here.key("file");
            let inner = fields.take("file").ok_or_else(|| at.bad("is missing"))?;
            file(Fields::new(inner, at)?, &here)
        }
        _ => {
            // vLLM's.
            let own = match kind.as_str() {
                "video_url" => Some("a video"),
                "audio_url" => Some("a sound at a URL"),
                "image_embeds" | "audio_embeds" | "image_pil" => Some("a picture or a sound in embeddings"),
                _ => None,
            };
            if let Some(own) = own {
                bound(talk, own);
                return Ok(Part::Text(String::new()));
            }
            Err(here.key("type").bad(format_args!(
                "unknown kind of content `{}`; known are `text`, `image_url`, `input_audio`, `file`, `refusal`",
                short(&kind)
            )))
        }
    }
}

/// `file_id`, `file_data` or `file_url`, with a `filename`; the Responses' as well.
pub(super) fn file(mut fields: Fields<'_>, at: &At<'_>) -> Result<Part, BadRequest> {
    let here = fields.at;
    let name = fields.string("filename")?;
    let mut id = fields.string("file_id")?;
    // The bytes, where both are given: every provider takes those.
    let source = if let Some(data) = fields.long("file_data")? {
        let place = here.key("file_data");
        if data.starts_with("data:") { media::url(data, &place)? } else { media::data(None, data, &place)? }
    } else if let Some(id) = id.take() {
        Source::File(id)
    } else if let Some(url) = fields.string("file_url")? {
        media::url(url, &here.key("file_url"))?
    } else {
        return Err(here.bad("needs a `file_id`, `file_data` or a `file_url`"));
    };
    let mut part = super::document(source, name, at)?;
    if let Part::Media(medium) = &mut part {
        medium.id = id;
    }
    Ok(part)
}
