//! Anthropic's Messages.

use super::super::json::{At, Json};
use super::super::media;
use super::super::words::short;
use super::super::{
    Call, Conversation, Format, Knob, MediaKind, Part, Role, Source, Thinking, Thought, Tool, ToolChoice,
};
use super::{Fields, Turns, arguments, bound, effort, fields, hosted, knobs, texts};
use crate::dialect::request::BadRequest;

const KNOBS: &[(&str, Knob)] =
    &[("temperature", Knob::Temperature), ("top_p", Knob::TopP), ("top_k", Knob::TopK)];

/// What tells Anthropic how to serve, and nobody else anything.
const ANTHROPIC_ONLY: &[&str] =
    &["service_tier", "cache_control", "context_management", "inference_geo", "betas", "speed"];

pub(super) fn decode(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    knobs(talk, fields, KNOBS)?;
    talk.max_tokens = fields.count("max_tokens")?;
    let at = here.key("stop_sequences");
    talk.stop = fields.take("stop_sequences").map_or(Ok(Vec::new()), |stop| texts(stop, &at))?;
    // The stream's events have the usage, always.
    talk.wants_usage = true;
    let at = here.key("metadata");
    if let Some(metadata) = fields.take("metadata") {
        talk.user = Fields::new(metadata, at)?.string("user_id")?;
    }
    thinking(talk, fields)?;
    formats(talk, fields)?;
    for key in ["container", "mcp_servers"] {
        match fields.take(key) {
            None => {}
            Some(Json::Array(items)) if items.is_empty() => {}
            Some(_) => bound(talk, "what runs at Anthropic (`container`, `mcp_servers`)"),
        }
    }
    let list = here.key("tools");
    for (index, one) in fields.array("tools")?.into_iter().enumerate() {
        talk.tools.push(tool(Fields::new(one, list.index(index))?)?);
    }
    let at = here.key("tool_choice");
    if let Some(choice) = fields.take("tool_choice") {
        tool_choice(talk, Fields::new(choice, at)?)?;
    }
    fields.skip(ANTHROPIC_ONLY);

    let mut turns = Turns::new(false);
    let system = content(talk, fields, "system")?;
    if !system.is_empty() {
        turns.say(&here, Role::System, system)?;
    }
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

fn thinking(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    let at = here.key("thinking");
    if let Some(thinking) = fields.take("thinking") {
        let mut thinking = Fields::new(thinking, at)?;
        let kind = thinking.text("type")?;
        let (on, budget) = match kind.as_str() {
            "enabled" => (true, thinking.count("budget_tokens")?),
            "adaptive" => (true, None),
            "disabled" => (false, None),
            _ => return Err(at.key("type").bad("must be `enabled`, `adaptive` or `disabled`")),
        };
        talk.thinking = Thinking { on: Some(on), effort: None, budget };
    }
    Ok(())
}

/// `output_config`, and `output_format` as it was called in its beta.
fn formats(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    let at = here.key("output_format");
    if let Some(wanted) = fields.take("output_format") {
        talk.format = format(Fields::new(wanted, at)?)?;
    }
    let at = here.key("output_config");
    if let Some(config) = fields.take("output_config") {
        let mut config = Fields::new(config, at)?;
        if let Some(word) = config.string("effort")? {
            // How much effort goes into the whole answer; whether it thinks is said elsewhere.
            talk.thinking.effort = effort(&word, &at.key("effort"))?.effort;
        }
        let at = at.key("format");
        if let Some(wanted) = config.take("format") {
            talk.format = format(Fields::new(wanted, at)?)?;
        }
    }
    Ok(())
}

fn format(mut fields: Fields<'_>) -> Result<Format, BadRequest> {
    if fields.text("type")? != "json_schema" {
        return Err(fields.at.key("type").bad("must be `json_schema`"));
    }
    match fields.object("schema")? {
        Some(schema) => Ok(Format::Schema { name: None, description: None, schema, strict: Some(true) }),
        None => Err(fields.at.key("schema").bad("is missing")),
    }
}

fn tool(mut fields: Fields<'_>) -> Result<Tool, BadRequest> {
    match fields.string("type")? {
        Some(kind) if kind != "custom" => {
            let name = fields.string("name")?.unwrap_or_else(|| kind.clone());
            Ok(Tool { name, ..hosted(kind) })
        }
        _ => Ok(Tool {
            name: fields.text("name")?,
            description: fields.string("description")?,
            parameters: fields.object("input_schema")?,
            strict: fields.bool("strict")?,
            hosted: None,
        }),
    }
}

fn tool_choice(talk: &mut Conversation, mut fields: Fields<'_>) -> Result<(), BadRequest> {
    talk.choice = match fields.text("type")?.as_str() {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Named(fields.text("name")?),
        _ => return Err(fields.at.key("type").bad("must be `auto`, `any`, `tool` or `none`")),
    };
    talk.parallel = fields.bool("disable_parallel_tool_use")?.map(|disabled| !disabled);
    Ok(())
}

fn message(talk: &mut Conversation, turns: &mut Turns, mut fields: Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    let role = fields.text("role")?;
    match role.as_str() {
        "assistant" => {
            let parts = content(talk, &mut fields, "content")?;
            turns.say(&here, Role::Assistant, parts)
        }
        // Opus 4.8 and later take instructions between the turns.
        "system" => {
            let parts = content(talk, &mut fields, "content")?;
            turns.say(&here, Role::System, parts)
        }
        "user" => user(talk, turns, &mut fields),
        _ => Err(here
            .key("role")
            .bad(format_args!("unknown role `{}`; known are `user`, `assistant`, `system`", short(&role)))),
    }
}

/// Results of tools stand among what the user says.
fn user(talk: &mut Conversation, turns: &mut Turns, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    let at = here.key("content");
    let items = match fields.take("content") {
        Some(Json::Array(items)) => items,
        Some(Json::String(text)) => return turns.say(&here, Role::User, vec![Part::Text(text)]),
        Some(other) => return Err(not_content(&at, &other)),
        None => return Err(at.bad("is missing")),
    };
    let mut said = Vec::new();
    let mut results = false;
    for (index, item) in items.into_iter().enumerate() {
        let at = at.index(index);
        let mut block = Fields::new(item, at)?;
        let kind = block.text("type")?;
        if kind == "tool_result" {
            results = true;
            let id = block.text("tool_use_id")?;
            let error = block.bool("is_error")?.unwrap_or(false);
            let parts = content(talk, &mut block, "content")?;
            turns.result(&at, Some(&id), None, parts, error)?;
        } else {
            self::block(talk, &kind, block, &mut said)?;
        }
    }
    if said.is_empty() && results { Ok(()) } else { turns.say(&here, Role::User, said) }
}

/// A string, or blocks.
fn content(talk: &mut Conversation, fields: &mut Fields<'_>, key: &str) -> Result<Vec<Part>, BadRequest> {
    let here = fields.at;
    let at = here.key(key);
    match fields.take(key) {
        None => Ok(Vec::new()),
        Some(Json::String(text)) => Ok(vec![Part::Text(text)]),
        Some(Json::Array(items)) => blocks(talk, items, &at),
        Some(other) => Err(not_content(&at, &other)),
    }
}

fn not_content(at: &At<'_>, got: &Json) -> BadRequest {
    at.bad(format_args!("must be a string or an array of blocks, not {}", fields::kind(got)))
}

fn blocks(talk: &mut Conversation, items: Vec<Json>, at: &At<'_>) -> Result<Vec<Part>, BadRequest> {
    let mut parts = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let mut fields = Fields::new(item, at.index(index))?;
        let kind = fields.text("type")?;
        block(talk, &kind, fields, &mut parts)?;
    }
    Ok(parts)
}

fn block(
    talk: &mut Conversation,
    kind: &str,
    mut fields: Fields<'_>,
    parts: &mut Vec<Part>,
) -> Result<(), BadRequest> {
    let here = fields.at;
    match kind {
        "text" => parts.push(Part::Text(fields.text("text")?)),
        "thinking" => {
            let (text, signature) = (fields.text("thinking")?, fields.string("signature")?);
            let signature = signature.filter(|signature| !signature.is_empty());
            parts.push(Part::Thought(Thought { text, signature, redacted: None }));
        }
        "redacted_thinking" => {
            let redacted = Some(fields.text("data")?);
            parts.push(Part::Thought(Thought { redacted, ..Thought::default() }));
        }
        "tool_use" => {
            let (arguments, object) = arguments(fields.take("input"), &here.key("input"))?;
            let (id, name) = (fields.text("id")?, fields.text("name")?);
            parts.push(Part::Call(Call { id, name, arguments, object, signature: None }));
        }
        "image" | "document" => source(talk, kind == "image", fields, parts)?,
        "search_result" => {
            for key in ["title", "source"] {
                if let Some(text) = fields.string(key)? {
                    parts.push(Part::Text(text));
                }
            }
            parts.append(&mut content(talk, &mut fields, "content")?);
        }
        "tool_result" => {
            return Err(here.bad("a tool's result stands in a message of the user"));
        }
        _ if kind.starts_with("server_tool") || kind.ends_with("_tool_result") || kind.contains("mcp") => {
            bound(talk, "a result of Anthropic's own tools");
        }
        "container_upload" | "tool_reference" | "fallback" | "compaction" => {
            bound(talk, "what runs at Anthropic");
        }
        _ => {
            return Err(here.key("type").bad(format_args!(
                "unknown kind of block `{}`; known are `text`, `image`, `document`, `tool_use`, `tool_result`, \
                 `thinking`",
                short(kind)
            )));
        }
    }
    Ok(())
}

fn source(
    talk: &mut Conversation,
    image: bool,
    mut fields: Fields<'_>,
    parts: &mut Vec<Part>,
) -> Result<(), BadRequest> {
    let here = fields.at;
    let at = here.key("source");
    let mut inner = Fields::new(fields.take("source").ok_or_else(|| at.bad("is missing"))?, at)?;
    let name = fields.string("title")?;
    let source = match inner.text("type")?.as_str() {
        "base64" => {
            let media_type = inner.string("media_type")?;
            media::data(media_type, inner.long_text("data")?, &at.key("data"))?
        }
        "url" => media::url(inner.text("url")?, &at.key("url"))?,
        "file" => Source::File(inner.text("file_id")?),
        "text" => {
            parts.extend(name.map(Part::Text));
            parts.push(Part::Text(inner.text("data")?));
            return Ok(());
        }
        "content" => {
            parts.extend(name.map(Part::Text));
            parts.append(&mut content(talk, &mut inner, "content")?);
            return Ok(());
        }
        _ => {
            return Err(at.key("type").bad("must be `base64`, `url`, `file`, `text` or `content`"));
        }
    };
    parts.push(if image {
        Part::Media(super::medium(MediaKind::Image, source, &here))
    } else {
        super::document(source, name, &here)?
    });
    Ok(())
}
