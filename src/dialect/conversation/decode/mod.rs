//! From a client's body to the neutral form.

mod anthropic;
mod chat;
mod fields;
mod ollama;
mod responses;

use super::json::{At, Json, parse};
use super::media;
use super::turns::Turns;
use super::{Conversation, Effort, Format, Knob, Media, MediaKind, Part, Source, Thinking, Tool, ToolChoice};
use crate::dialect::Dialect;
use crate::dialect::request::BadRequest;
use crate::limits;
use fields::Fields;

pub(super) fn decode(client: Dialect, body: Json) -> Result<Conversation, BadRequest> {
    let mut fields = Fields::new(body, At::ROOT)?;
    let mut talk = Conversation {
        client,
        model: fields.string("model")?.unwrap_or_default(),
        turns: Vec::new(),
        tools: Vec::new(),
        choice: ToolChoice::Unsaid,
        parallel: None,
        format: Format::Text,
        thinking: Thinking::default(),
        sampling: Vec::new(),
        logit_bias: None,
        stop: Vec::new(),
        max_tokens: None,
        choices: 1,
        logprobs: None,
        user: None,
        metadata: None,
        stream: false,
        wants_usage: false,
        keep_alive: None,
        options: Vec::new(),
        extras: Vec::new(),
        bound: None,
    };
    if talk.model.len() > limits::MODEL_NAME_BYTES {
        let what = format_args!("longer than {} bytes", limits::MODEL_NAME_BYTES);
        return Err(At::ROOT.key("model").bad(what));
    }
    let streams = matches!(client, Dialect::OllamaChat | Dialect::OllamaGenerate);
    talk.stream = fields.bool("stream")?.unwrap_or(streams);
    match client {
        Dialect::OpenaiChat => chat::chat(&mut talk, &mut fields)?,
        Dialect::OpenaiCompletions => chat::completions(&mut talk, &mut fields)?,
        Dialect::OpenaiResponses => responses::decode(&mut talk, &mut fields)?,
        Dialect::OllamaChat => ollama::chat(&mut talk, &mut fields)?,
        Dialect::OllamaGenerate => ollama::generate(&mut talk, &mut fields)?,
        Dialect::Anthropic => anthropic::decode(&mut talk, &mut fields)?,
        Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed | Dialect::Gemini => {
            talk.bound = Some("this endpoint");
        }
    }
    talk.extras.append(&mut fields.rest());
    Ok(talk)
}

/// Reads knobs off their names.
fn knobs(talk: &mut Conversation, fields: &mut Fields<'_>, names: &[(&str, Knob)]) -> Result<(), BadRequest> {
    for (name, knob) in names {
        if let Some(number) = fields.number(name)?
            && talk.knob(*knob).is_none()
        {
            talk.sampling.push((*knob, number));
        }
    }
    Ok(())
}

/// A text, or several: `stop`.
fn texts(json: Json, at: &At<'_>) -> Result<Vec<String>, BadRequest> {
    match json {
        Json::String(text) => Ok(vec![text]),
        Json::Array(items) => {
            let text = |(index, item)| match fields::long(item) {
                Ok(text) => Ok(text.into_string()),
                Err(other) => {
                    Err(at.index(index).bad(format_args!("must be a string, not {}", fields::kind(&other))))
                }
            };
            items.into_iter().enumerate().map(text).collect()
        }
        other => {
            Err(at.bad(format_args!("must be a string or an array of strings, not {}", fields::kind(&other))))
        }
    }
}

/// A call's arguments: JSON in a string, or an object.
fn arguments(json: Option<Json>, at: &At<'_>) -> Result<(String, bool), BadRequest> {
    match json {
        None => Ok(("{}".to_owned(), true)),
        Some(Json::String(text)) if text.trim().is_empty() => Ok(("{}".to_owned(), true)),
        Some(Json::String(text)) => {
            let object = matches!(parse(text.as_bytes()), Ok(Json::Object(_)));
            Ok((text, object))
        }
        Some(object @ Json::Object(_)) => Ok((object.text(), true)),
        Some(other) => {
            Err(at.bad(format_args!("must be an object or a string, not {}", fields::kind(&other))))
        }
    }
}

/// OpenAI's `function` object of a tool, Ollama's as well.
fn function(mut fields: Fields<'_>) -> Result<Tool, BadRequest> {
    Ok(Tool {
        name: fields.text("name")?,
        description: fields.string("description")?,
        parameters: fields.object("parameters")?,
        strict: fields.bool("strict")?,
        hosted: None,
    })
}

/// OpenAI's list of tools of Chat Completions, Ollama's as well.
fn tools(talk: &mut Conversation, fields: &mut Fields<'_>) -> Result<(), BadRequest> {
    let here = fields.at;
    let list = here.key("tools");
    for (index, tool) in fields.array("tools")?.into_iter().enumerate() {
        let at = list.index(index);
        let mut tool = Fields::new(tool, at)?;
        let kind = tool.string("type")?.unwrap_or_else(|| "function".to_owned());
        if kind == "function" {
            let at = at.key("function");
            let inner = tool.take("function").ok_or_else(|| at.bad("is missing"))?;
            talk.tools.push(function(Fields::new(inner, at)?)?);
        } else {
            talk.tools.push(hosted(kind));
        }
    }
    Ok(())
}

/// A tool of the client's own provider.
fn hosted(kind: String) -> Tool {
    Tool { name: kind.clone(), description: None, parameters: None, strict: None, hosted: Some(kind) }
}

/// OpenAI's `response_format`, the Responses' `text.format` as well, which has no inner object.
fn format(mut fields: Fields<'_>) -> Result<Format, BadRequest> {
    let here = fields.at;
    let kind = fields.text("type")?;
    match kind.as_str() {
        "text" => Ok(Format::Text),
        // llama.cpp's and others' with a schema beside it.
        "json_object" => Ok(match fields.object("schema")? {
            Some(schema) => Format::Schema { name: None, description: None, schema, strict: None },
            None => Format::Json,
        }),
        "json_schema" => {
            let at = here.key("json_schema");
            let mut inner = match fields.take("json_schema") {
                Some(inner) => Fields::new(inner, at)?,
                None => fields,
            };
            Ok(Format::Schema {
                name: inner.string("name")?,
                description: inner.string("description")?,
                schema: match inner.object("schema")? {
                    Some(schema) => schema,
                    None => return Err(inner.at.key("schema").bad("is missing")),
                },
                strict: inner.bool("strict")?,
            })
        }
        _ => Err(here.key("type").bad("must be `text`, `json_object` or `json_schema`")),
    }
}

/// A word for how hard to think, of whichever provider.
fn effort(word: &str, at: &At<'_>) -> Result<Thinking, BadRequest> {
    let effort = match word {
        "none" => return Ok(Thinking { on: Some(false), ..Thinking::default() }),
        "minimal" => Effort::Minimal,
        "low" => Effort::Low,
        "medium" => Effort::Medium,
        "high" => Effort::High,
        "xhigh" => Effort::Higher,
        "max" => Effort::Max,
        _ => {
            return Err(at.bad("must be `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`"));
        }
    };
    Ok(Thinking { on: Some(true), effort: Some(effort), budget: None })
}

/// What belongs to the client's own server alone; the first is told.
fn bound(talk: &mut Conversation, what: &'static str) {
    talk.bound.get_or_insert(what);
}

/// A document with its name; one that is a text becomes words.
fn document(source: Source, name: Option<String>, at: &At<'_>) -> Result<Part, BadRequest> {
    if let Source::Data { media_type, base64 } = &source
        && media_type.starts_with("text/")
    {
        let text = media::text(base64).ok_or_else(|| at.bad("a text must be in UTF-8"))?;
        return Ok(Part::Text(match name {
            Some(name) => format!("{name}\n{text}"),
            None => text,
        }));
    }
    Ok(Part::Media(Media { name, ..medium(MediaKind::Document, source, at) }))
}

/// A medium, with its place.
fn medium(kind: MediaKind, source: Source, at: &At<'_>) -> Media {
    Media { kind, source, name: None, detail: None, id: None, at: at.to_string() }
}
