//! OpenAI's Responses.

use super::super::json::{At, Json};
use super::super::media;
use super::super::words::short;
use super::super::{Call, Conversation, Knob, MediaKind, Part, Role, Source, Thought, ToolChoice};
use super::{Fields, Turns, arguments, bound, chat, effort, fields, format, function, hosted, knobs};
use crate::dialect::request::BadRequest;

const KNOBS: &[(&str, Knob)] = &[("temperature", Knob::Temperature), ("top_p", Knob::TopP)];

/// What ties a request to what OpenAI keeps, and how that is told.
const KEPT: &[(&str, &str)] = &[
    ("previous_response_id", "an earlier answer (`previous_response_id`)"),
    ("conversation", "a stored conversation (`conversation`)"),
    ("prompt", "a stored prompt (`prompt`)"),
];

/// What tells OpenAI how to serve, and nobody else anything.
const OPENAI_ONLY: &[&str] = &[
    "store",
    "include",
    "truncation",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "stream_options",
    "client_metadata",
];

pub(super) fn decode(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    for (key, told) in KEPT {
        if fields.take(key).is_some() {
            bound(talk, told);
        }
    }
    if fields.bool("background")? == Some(true) {
        bound(talk, "an answer in the background");
    }
    knobs(talk, fields, KNOBS)?;
    talk.max_tokens = fields.count("max_output_tokens")?;
    talk.parallel = fields.bool("parallel_tool_calls")?;
    talk.user = fields.string("user")?.or(fields.string("safety_identifier")?);
    talk.metadata = fields.object("metadata")?;
    talk.logprobs = fields.count("top_logprobs")?.filter(|count| *count > 0);
    // The stream's last event has the usage, always.
    talk.wants_usage = true;
    let at = here.key("text");
    if let Some(text) = fields.take("text") {
        let mut text = Fields::new(text, at)?;
        let at = at.key("format");
        if let Some(wanted) = text.take("format") {
            talk.format = format(Fields::new(wanted, at)?)?;
        }
    }
    let at = here.key("reasoning");
    if let Some(reasoning) = fields.take("reasoning")
        && let Some(word) = Fields::new(reasoning, at)?.string("effort")?
    {
        talk.thinking = effort(&word, &at.key("effort"))?;
    }
    tools(talk, fields)?;
    if let Some(choice) = fields.take("tool_choice") {
        talk.choice = tool_choice(talk, choice, here.key("tool_choice"))?;
    }
    fields.skip(OPENAI_ONLY);

    let mut turns = Turns::new(false);
    if let Some(instructions) = fields.string("instructions")? {
        turns.say(&here, Role::System, vec![Part::Text(instructions)])?;
    }
    let list = here.key("input");
    match fields.take("input") {
        Some(Json::String(text)) => turns.say(&list, Role::User, vec![Part::Text(text)])?,
        Some(Json::Array(items)) => {
            for (index, one) in items.into_iter().enumerate() {
                item(talk, &mut turns, Fields::new(one, list.index(index))?)?;
            }
        }
        Some(other) => {
            return Err(list.bad(format_args!("must be a string or an array, not {}", fields::kind(&other))));
        }
        None if talk.bound.is_some() => {}
        None => return Err(list.bad("is missing")),
    }
    talk.turns = turns.end(&list)?;
    Ok(())
}

fn tools(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    let list = here.key("tools");
    for (index, tool) in fields.array("tools")?.into_iter().enumerate() {
        let mut tool = Fields::new(tool, list.index(index))?;
        let kind = tool.text("type")?;
        talk.tools.push(if kind == "function" { function(tool)? } else { hosted(kind) });
    }
    Ok(())
}

fn tool_choice(talk: &mut Conversation, choice: Json, at: At<'_>) -> Result<ToolChoice, BadRequest> {
    if let Json::String(word) = &choice {
        return chat::choice_word(word, &at);
    }
    let mut fields = Fields::new(choice, at)?;
    match fields.text("type")?.as_str() {
        "function" | "custom" => Ok(ToolChoice::Named(fields.text("name")?)),
        "allowed_tools" => chat::choice_word(&fields.text("mode")?, &at.key("mode")),
        _ => {
            bound(talk, "a tool of OpenAI's own");
            Ok(ToolChoice::Required)
        }
    }
}

fn item(talk: &mut Conversation, turns: &mut Turns, mut fields: Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    let kind = fields.string("type")?.unwrap_or_else(|| "message".to_owned());
    match kind.as_str() {
        "message" => message(talk, turns, fields),
        "function_call" => {
            let (arguments, object) = arguments(fields.take("arguments"), &here.key("arguments"))?;
            let (id, name) = (fields.text("call_id")?, fields.text("name")?);
            turns.go_on(&here, vec![Part::Call(Call { id, name, arguments, object, signature: None })])
        }
        "custom_tool_call" => {
            let input = Json::String(fields.text("input")?);
            let arguments = Json::Object(vec![("input".to_owned(), input)]).text();
            let (id, name) = (fields.text("call_id")?, fields.text("name")?);
            turns.go_on(&here, vec![Part::Call(Call { id, name, arguments, object: true, signature: None })])
        }
        "function_call_output" | "custom_tool_call_output" => {
            let id = fields.text("call_id")?;
            let parts = fields::content(talk, &mut fields, "output", part)?;
            turns.result(&here, Some(&id), None, parts, false)
        }
        "reasoning" => {
            let mut text = summary(&mut fields, "content")?;
            if text.is_empty() {
                text = summary(&mut fields, "summary")?;
            }
            // Without words there is only what OpenAI alone can read.
            if text.is_empty() {
                return Ok(());
            }
            turns.go_on(&here, vec![Part::Thought(Thought { text, ..Thought::default() })])
        }
        "item_reference" => {
            bound(talk, "an item that OpenAI keeps (`item_reference`)");
            Ok(())
        }
        // What it looked up; the answer that came of it stands after it.
        "web_search_call" | "file_search_call" | "code_interpreter_call" | "image_generation_call" => Ok(()),
        _ => {
            bound(talk, "an item of OpenAI's own tools");
            Ok(())
        }
    }
}

fn message(talk: &mut Conversation, turns: &mut Turns, mut fields: Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    let role = fields.text("role")?;
    let parts = fields::content(talk, &mut fields, "content", part)?;
    match role.as_str() {
        "system" | "developer" => turns.say(&here, Role::System, parts),
        "user" => turns.say(&here, Role::User, parts),
        "assistant" => turns.go_on(&here, parts),
        _ => Err(here.key("role").bad(format_args!(
            "unknown role `{}`; known are `system`, `developer`, `user`, `assistant`",
            short(&role)
        ))),
    }
}

/// The texts of a reasoning item, one paragraph each.
fn summary(fields: &mut Fields<'_>, key: &str) -> Result<String, BadRequest> {
    let here = fields.at;
    let list = here.key(key);
    let mut texts = Vec::new();
    for (index, part) in fields.array(key)?.into_iter().enumerate() {
        texts.push(Fields::new(part, list.index(index))?.string("text")?.unwrap_or_default());
    }
    Ok(texts.join("\n\n"))
}

fn part(talk: &mut Conversation, mut fields: Fields<'_>) -> Result<Part, BadRequest> {
    let here = fields.at;
    let kind = fields.text("type")?;
    match kind.as_str() {
        "input_text" | "output_text" | "text" | "summary_text" => Ok(Part::Text(fields.text("text")?)),
        "refusal" => Ok(Part::Refusal(fields.text("refusal")?)),
        "input_image" => {
            let url = fields.long("image_url")?;
            let (source, id) = match url {
                Some(url) => (media::url(url, &here.key("image_url"))?, fields.string("file_id")?),
                None => (Source::File(fields.text("file_id")?), None),
            };
            let mut image = super::medium(MediaKind::Image, source, &here);
            image.id = id;
            image.detail = fields.string("detail")?;
            Ok(Part::Media(image))
        }
        "input_file" => chat::file(fields, &here),
        "input_audio" => {
            bound(talk, "a sound");
            Ok(Part::Text(String::new()))
        }
        _ => Err(here.key("type").bad(format_args!(
            "unknown kind of content `{}`; known are `input_text`, `output_text`, `input_image`, `input_file`, \
             `refusal`",
            short(&kind)
        ))),
    }
}
