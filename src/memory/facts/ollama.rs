//! Ollama: `/api/ps`, `/api/show`, `/api/tags` (`api/types.go`: `ProcessModelResponse`, `ShowResponse`).

use super::{Resident, bounded, layer_value, name, number, push};
use crate::memory::facts::date::unix_seconds;
use crate::memory::need::{Layers, Shape, kib};
use crate::wire::json::{Cursor, Stop, key_is, readable};

/// `GET /api/ps`: what is loaded. `None`: that is not its form.
#[must_use]
pub fn ollama_ps(body: &[u8]) -> Option<Vec<Resident>> {
    let mut list = None;
    let whole = bounded(body).object(|key, at| {
        if key_is(key, "models") {
            let mut all = Vec::new();
            // Without any, `null`: a Go slice that was never made.
            at.array(|at| {
                let model = model(at)?;
                push(&mut all, model);
                Ok(())
            })?;
            list = Some(all);
        }
        Ok(())
    });
    whole.ok().and(list)
}

fn model(at: &mut Cursor<'_>) -> Result<Resident, Stop> {
    let mut model = Resident::default();
    at.object(|key, at| {
        if key_is(key, "name") || key_is(key, "model") && model.name.is_empty() {
            model.name = name(at)?.unwrap_or_default();
        } else if key_is(key, "size") {
            model.size = kib(at.number()?.unwrap_or(0));
        } else if key_is(key, "size_vram") {
            model.size_gpu = kib(at.number()?.unwrap_or(0));
        } else if key_is(key, "context_length") {
            model.context = number(at)?.filter(|context| *context > 0);
        } else if key_is(key, "expires_at") {
            model.expires = at.string()?.and_then(|time| unix_seconds(time.raw));
        }
        Ok(())
    })?;
    Ok(model)
}

/// `POST /api/show`: what a model is made of. Its size is not in it: see [`ollama_size`]. `None`: it does not say.
///
/// Unless it is asked for with `"verbose": true`, Ollama leaves out arrays; heads that differ from layer to layer are
/// then taken for as many as there are of queries, which is never less.
#[must_use]
pub fn ollama_show(body: &[u8]) -> Option<Shape> {
    let mut layers = Layers::new();
    let (mut images, mut num_ctx) = (false, None);
    let whole = bounded(body).object(|key, at| {
        if key_is(key, "model_info") {
            at.object(|key, at| info(&mut layers, key, at))?;
        } else if key_is(key, "projector_info") {
            images |= at.truthy()?;
        } else if key_is(key, "capabilities") {
            at.array(|at| {
                images |= at.string()?.is_some_and(|word| word.is(b"vision"));
                Ok(())
            })?;
        } else if key_is(key, "parameters")
            && let Some(text) = at.string()?
        {
            num_ctx = parameter(&readable(text.raw));
        }
        Ok(())
    });
    let shape = layers.shape()?;
    whole.ok().map(|_| Shape { images, num_ctx, ..shape })
}

fn info(layers: &mut Layers, key: &[u8], at: &mut Cursor<'_>) -> Result<(), Stop> {
    if key_is(key, "general.architecture") {
        if let Some(arch) = at.string()? {
            // Longer than any: not one whose windows are known.
            let _longer = std::str::from_utf8(arch.raw).map(|arch| layers.arch.push_str(arch));
        }
    } else if let Some(key) = std::str::from_utf8(key).ok().and_then(Layers::key) {
        layer_value(layers, key, at)?;
    }
    Ok(())
}

/// `num_ctx` among lines of a name and a value each.
fn parameter(text: &str) -> Option<u32> {
    text.lines().find_map(|line| line.trim().strip_prefix("num_ctx")?.trim().parse().ok())
}

/// A model's size in `GET /api/tags`, in KiB: that of all its files, an image projector among them. `None`: it is not
/// in it.
#[must_use]
pub fn ollama_size(body: &[u8], model: &str) -> Option<u32> {
    let mut size = None;
    // What stands before a fault counts: the list is as long as the disk is large.
    let _whole = bounded(body).object(|key, at| {
        if key_is(key, "models") {
            at.array(|at| {
                let found = self::model(at)?;
                if size.is_none() && bare(&found.name).eq_ignore_ascii_case(bare(model)) {
                    size = Some(found.size);
                }
                Ok(())
            })?;
        }
        Ok(())
    });
    size.filter(|size| *size > 0)
}

/// Whether Ollama has a model of this name computed by a cloud (`internal/modelref`): its tag is `cloud`, or ends with
/// `-cloud`.
#[must_use]
pub fn ollama_cloud(model: &str) -> bool {
    let Some((_, tag)) = model.rsplit_once(':') else { return false };
    let tag = tag.trim().to_ascii_lowercase();
    tag == "cloud" || !tag.contains('/') && tag.ends_with("-cloud")
}

const LATEST: &str = ":latest";

/// A name without what Ollama adds by itself (`types/model/name.go`): host, namespace and tag by default.
pub(in crate::memory) fn bare(name: &str) -> &str {
    let name = name.strip_prefix("registry.ollama.ai/").unwrap_or(name);
    let name = name.strip_prefix("library/").unwrap_or(name);
    let tag = name.len().saturating_sub(LATEST.len());
    match (name.get(..tag), name.get(tag..)) {
        (Some(bare), Some(tag)) if tag.eq_ignore_ascii_case(LATEST) => bare,
        _ => name,
    }
}
