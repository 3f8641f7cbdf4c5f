//! Ollama's `/api/chat` and `/api/generate`.

use super::super::json::{At, Json};
use super::super::media;
use super::super::words::short;
use super::super::{Conversation, Effort, Format, Knob, MediaKind, Part, Role, Thinking, Thought, Turn};
use super::{Fields, Turns, bound, chat, fields, knobs, texts, tools};
use crate::dialect::request::BadRequest;

/// Those of `options` that have a neutral form.
const KNOBS: &[(&str, Knob)] = &[
    ("temperature", Knob::Temperature),
    ("top_p", Knob::TopP),
    ("top_k", Knob::TopK),
    ("min_p", Knob::MinP),
    ("frequency_penalty", Knob::FrequencyPenalty),
    ("presence_penalty", Knob::PresencePenalty),
    ("repeat_penalty", Knob::RepeatPenalty),
    ("seed", Knob::Seed),
];

pub(super) fn chat(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    common(talk, fields)?;
    tools(talk, fields)?;
    let here = fields.at;
    let list = here.key("messages");
    // Ollama's clients leave results out, and ids.
    let mut turns = Turns::new(true);
    for (index, one) in fields.array("messages")?.into_iter().enumerate() {
        message(&mut turns, Fields::new(one, list.index(index))?)?;
    }
    talk.turns = turns.end(&list)?;
    Ok(())
}

pub(super) fn generate(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    common(talk, fields)?;
    if fields.bool("raw")? == Some(true) {
        bound(talk, "a raw prompt (`raw`)");
    }
    if fields.string("template")?.is_some_and(|it| !it.is_empty()) {
        bound(talk, "a prompt template (`template`)");
    }
    if !fields.array("context")?.is_empty() {
        bound(talk, "a conversation in tokens (`context`)");
    }
    if fields.string("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        bound(talk, "a completion before a suffix");
    }
    let here = fields.at;
    if let Some(system) = fields.string("system")?.filter(|system| !system.is_empty()) {
        talk.turns.push(Turn { role: Role::System, parts: vec![Part::Text(system)] });
    }
    let prompt = fields.string("prompt")?.unwrap_or_default();
    let mut parts = Vec::new();
    if !prompt.is_empty() {
        parts.push(Part::Text(prompt));
    }
    images(fields, &here, &mut parts)?;
    if parts.is_empty() {
        // It only loads the model.
        talk.turns.clear();
    } else {
        talk.turns.push(Turn { role: Role::User, parts });
    }
    Ok(())
}

fn common(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    let at = here.key("options");
    if let Some(options) = fields.take("options") {
        let mut options = Fields::new(options, at)?;
        knobs(talk, &mut options, KNOBS)?;
        // -1 and -2 are no limit.
        let limit = options.number("num_predict")?;
        talk.max_tokens =
            limit.and_then(|it| it.as_u64().or(it.as_f64().filter(|it| *it >= 1.0).map(|it| it as u64)));
        let stop = at.key("stop");
        talk.stop = options.take("stop").map_or(Ok(Vec::new()), |it| texts(it, &stop))?;
        talk.options = options.rest();
    }
    talk.format = match fields.take("format") {
        None => Format::Text,
        Some(Json::String(word)) => match word.as_str() {
            "" => Format::Text,
            "json" => Format::Json,
            _ => return Err(here.key("format").bad("must be `json` or a JSON schema")),
        },
        Some(schema @ Json::Object(_)) => {
            Format::Schema { name: None, description: None, schema, strict: None }
        }
        Some(other) => {
            let what = format_args!("must be `json` or a JSON schema, not {}", fields::kind(&other));
            return Err(here.key("format").bad(what));
        }
    };
    talk.thinking = match fields.take("think") {
        None => Thinking::default(),
        Some(Json::Bool(on)) => Thinking { on: Some(on), ..Thinking::default() },
        Some(Json::String(word)) => {
            let effort = match word.as_str() {
                "low" => Effort::Low,
                "medium" => Effort::Medium,
                "high" => Effort::High,
                "max" => Effort::Max,
                _ => {
                    return Err(here
                        .key("think")
                        .bad("must be true, false, `low`, `medium`, `high` or `max`"));
                }
            };
            Thinking { on: Some(true), effort: Some(effort), budget: None }
        }
        Some(other) => {
            return Err(here
                .key("think")
                .bad(format_args!("must be true or false, not {}", fields::kind(&other))));
        }
    };
    if fields.bool("logprobs")? == Some(true) {
        talk.logprobs = Some(fields.count("top_logprobs")?.unwrap_or(0));
    } else {
        fields.skip(&["top_logprobs"]);
    }
    talk.keep_alive = fields.take("keep_alive");
    // The last line of a stream has the counts, always.
    talk.wants_usage = true;
    Ok(())
}

fn message(turns: &mut Turns, mut fields: Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    let role = fields.text("role")?;
    let content = fields.string("content")?.unwrap_or_default();
    let mut parts = Vec::new();
    if let Some(text) = fields.string("thinking")?.filter(|text| !text.is_empty()) {
        parts.push(Part::Thought(Thought { text, ..Thought::default() }));
    }
    let calls = fields.array("tool_calls")?;
    if !content.is_empty() || role == "tool" {
        parts.push(Part::Text(content));
    }
    images(&mut fields, &here, &mut parts)?;
    let list = here.key("tool_calls");
    for (index, call) in calls.into_iter().enumerate() {
        parts.push(chat::tool_call(Fields::new(call, list.index(index))?)?);
    }
    match role.as_str() {
        "system" => turns.say(&here, Role::System, parts),
        "user" => turns.say(&here, Role::User, parts),
        "assistant" => turns.say(&here, Role::Assistant, parts),
        "tool" => {
            let id = fields.string("tool_call_id")?.filter(|id| !id.is_empty());
            let name = fields.string("tool_name")?.or(fields.string("name")?);
            turns.result(&here, id.as_deref(), name.as_deref(), parts, false)
        }
        _ => Err(here.key("role").bad(format_args!(
            "unknown role `{}`; known are `system`, `user`, `assistant`, `tool`",
            short(&role)
        ))),
    }
}

/// Pictures in base64; some clients leave the head of a data URL before it.
fn images(fields: &mut Fields<'_>, here: &At<'_>, parts: &mut Vec<Part>) -> Result<(), BadRequest> {
    let list = here.key("images");
    for (index, image) in fields.array("images")?.into_iter().enumerate() {
        let at = list.index(index);
        let image = fields::long(image)
            .map_err(|other| at.bad(format_args!("must be a string, not {}", fields::kind(&other))))?;
        let source =
            if image.starts_with("data:") { media::url(image, &at)? } else { media::data(None, image, &at)? };
        parts.push(Part::Media(super::medium(MediaKind::Image, source, &at)));
    }
    Ok(())
}
