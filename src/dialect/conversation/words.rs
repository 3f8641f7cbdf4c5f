//! Why a target cannot be asked, in words for the client.

use super::Cannot;

impl Cannot {
    /// For the client, who is told this beside what other targets said: one clause, which names the target.
    #[must_use]
    pub fn words(&self, target: &str) -> String {
        match self {
            Cannot::Parameter(dropped) => {
                format!("`{}` {}, and `{target}` is strict", dropped.field, dropped.why)
            }
            Cannot::File { at } => format!(
                "{at} is given by a provider's file id, which `{target}` does not know: send its bytes in base64"
            ),
            Cannot::Url { at } => {
                format!("{at} is given by a URL, which `{target}` does not fetch: send its bytes in base64")
            }
            Cannot::Media { at, what } => format!("{at} is {what}, which `{target}` does not take"),
            Cannot::ToolName(name) => {
                format!("`{target}` takes no tool of the name `{}`: use letters, digits and `_`", short(name))
            }
            Cannot::Choices(count) => format!("`{target}` gives one answer at a time, not {count}"),
            Cannot::Bound(what) => {
                format!("{what} exists at the client's own provider only, not at `{target}`")
            }
            Cannot::NoMessage => {
                format!("a request without a message only loads a model; `{target}` has no such")
            }
            Cannot::Prefill => {
                format!(
                    "the last message is the assistant's, which the model of `{target}` does not continue"
                )
            }
            Cannot::Dialect => format!("requests for `{target}` cannot be written"),
        }
    }
}

/// A client's text, cut to a length that suits a message.
pub(super) fn short(text: &str) -> String {
    text.chars().take(60).collect()
}
