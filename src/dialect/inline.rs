//! The bytes of pictures and files in the place of what only named them: all else of a body stays as it is.

use super::needs::Form;
use super::request::{Call, Changes, Edit, quote};

impl Call {
    /// [`Call::edits`] with the bytes of what the body only names: `inline` gives a reference's type and its bytes in
    /// base64, or
    /// nothing where it may stay as it is.
    ///
    /// # Errors
    /// What `inline` gave; `None`: it cannot be done in this body.
    pub fn edits_inlined<E>(
        &self,
        changes: &Changes<'_>,
        body: &[u8],
        mut inline: impl FnMut(bool, &str) -> Result<Option<(String, String)>, E>,
    ) -> Result<Vec<Edit>, Option<E>> {
        let mut edits = self.edits(changes);
        for named in &self.named {
            let text =
                body.get(named.text.clone()).and_then(|text| serde_json::from_slice::<String>(text).ok());
            let Some(text) = text else { return Err(None) };
            let Some((media_type, base64)) = inline(named.is_url, &text).map_err(Some)? else { continue };
            // Neither a MIME type nor base64 has anything that JSON escapes, and a picture is copied no oftener than it must.
            let url = || format!("\"data:{media_type};base64,{base64}\"").into_bytes();
            edits.push(match &named.form {
                Form::Url => (named.text.clone(), url()),
                Form::Member(member, name) => (member.clone(), [&quote(name), &b":"[..], &url()].concat()),
                Form::Source(source) => {
                    let text =
                        format!(r#"{{"type":"base64","media_type":"{media_type}","data":"{base64}"}}"#);
                    (source.clone(), text.into_bytes())
                }
            });
        }
        let edits = sorted(edits);
        let apart = edits.windows(2).all(|two| two[0].0.end <= two[1].0.start);
        if apart && !self.names_more { Ok(edits) } else { Err(None) }
    }
}

/// In the order in which they stand; a handful.
pub(super) fn sorted(edits: Vec<Edit>) -> Vec<Edit> {
    let mut sorted: Vec<Edit> = Vec::with_capacity(edits.len());
    for edit in edits {
        let at = sorted.partition_point(|(before, _)| before.start <= edit.0.start);
        sorted.insert(at, edit);
    }
    sorted
}
