//! Why a target is not a candidate: in types, and in words.

use std::time::Duration;

use crate::config::Egress;
use crate::health::Why;
use crate::memory::admit::NoRoom;

/// Why a target is not a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// Its kind has no such endpoint, and what is asked there cannot be translated.
    Dialect,
    /// Its group is in none of the request's groups.
    Group,
    /// Its `models` do not name the model; or it is a cloud without any.
    Model,
    /// Embeddings of another family, or of none that the configuration names.
    EmbeddingFamily,
    /// The prompt may not go there.
    LocalOnly(Egress),
    /// Its `capabilities` say that it cannot do what is asked for.
    Lacks(Capability),
    /// A picture's URL is not given to a server here, which would fetch it itself; and none is fetched for it.
    Urls,
    /// A file's id says nothing to it, and the box has no bytes of it.
    Files,
    /// Its context window, in tokens, is too small for the prompt.
    Context(u32),
    /// By its health.
    Health(Why),
    /// A budget is used up: for so long, where that is known.
    Budget(BudgetWhat, Option<Duration>),
    /// It has `max_concurrent` requests already.
    Full,
    /// By its memory, or its slots.
    Memory(NoRoom),
}

/// Something that not every target can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// `capabilities.tools`.
    Tools,
    /// `capabilities.images`.
    Images,
    /// `capabilities.json`.
    Json,
}

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetWhat {
    /// `requests_per_minute`.
    Requests,
    /// `tokens_per_minute`.
    Tokens,
    /// `money_per_day`.
    Money,
}

impl Passed {
    /// When it may be over, where that is known.
    #[must_use]
    pub const fn left(self) -> Option<Duration> {
        match self {
            Passed::Health(why) => why.left(),
            Passed::Budget(_, left) => left,
            Passed::Memory(NoRoom::Busy(left)) => Some(left),
            _ => None,
        }
    }

    /// Whether time, rather than a change of the configuration or of the request, may end it.
    #[must_use]
    pub const fn passes(self) -> bool {
        matches!(self, Passed::Health(_) | Passed::Budget(..) | Passed::Full | Passed::Memory(_))
    }

    /// Whether whoever made the request should be told beside what failed: it may end by itself, or is about this
    /// request alone.
    #[must_use]
    pub const fn is_told(self) -> bool {
        self.passes()
            || matches!(
                self,
                Passed::LocalOnly(_) | Passed::Lacks(_) | Passed::Context(_) | Passed::Urls | Passed::Files
            )
    }

    /// Whether a budget is used up.
    #[must_use]
    pub const fn is_budget(self) -> bool {
        matches!(self, Passed::Budget(..))
    }

    /// In words, for the client's error and for `status`.
    #[must_use]
    pub fn in_words(self) -> String {
        let words = match self {
            Passed::Dialect => "does not speak this API",
            Passed::Group => "is in another group",
            Passed::Model => "has no entry for this model in `models`",
            Passed::EmbeddingFamily => "is not of the same `embeddings` family",
            Passed::LocalOnly(Egress::Lan) => "is off the LAN, and this prompt must stay on it",
            Passed::LocalOnly(_) => "is off this box, and this prompt must stay on it",
            Passed::Lacks(Capability::Tools) => "has no tools, by its `capabilities`",
            Passed::Lacks(Capability::Images) => "takes no images, by its `capabilities`",
            Passed::Lacks(Capability::Json) => "cannot be held to JSON, by its `capabilities`",
            Passed::Urls => {
                "is not given URLs of pictures, since it would fetch them itself (send the picture in base64, or see \
                 `images.fetch` and `images.local_urls`)"
            }
            Passed::Files => {
                "does not know that file's id, which is another provider's (send the file in base64)"
            }
            Passed::Context(tokens) => {
                return format!("has a context window of {tokens} tokens, too small for this prompt");
            }
            Passed::Health(why) => return why.in_words(),
            Passed::Budget(what, left) => {
                let what = match what {
                    BudgetWhat::Requests => "requests for this minute",
                    BudgetWhat::Tokens => "tokens for this minute",
                    BudgetWhat::Money => "money for today",
                };
                let more = left.map(|left| format!(", for another {} s", left.as_secs().max(1)));
                return format!("has used up its budget of {what}{}", more.unwrap_or_default());
            }
            Passed::Full => "is as busy as `max_concurrent` allows",
            Passed::Memory(why) => return no_room(why),
        };
        words.to_owned()
    }
}

/// Whether memory itself is short: nobody is sent there before it is not. The others only make a request wait there, or
/// fall to the server's own care: it is asked after all who can serve it now.
#[must_use]
pub const fn is_short(why: NoRoom) -> bool {
    matches!(why, NoRoom::Red | NoRoom::NotResident | NoRoom::NotSmall(_))
}

fn no_room(why: NoRoom) -> String {
    let mib = |kib: u32| kib / 1024;
    let words = match why {
        NoRoom::Red => return Why::PressureRed.in_words(),
        NoRoom::NotResident => "gets only requests for loaded models: the box is low on memory",
        NoRoom::NotSmall(tokens) => {
            return format!(
                "gets only small requests: the box is low on memory, and this one may take {tokens} tokens"
            );
        }
        NoRoom::TooLarge { need, free } => {
            let (need, free) = (mib(need), mib(free));
            return format!(
                "would have to load this model, which needs {need} MiB where {free} MiB are free"
            );
        }
        NoRoom::Evicts => "would have to unload a model that is answering, for this one",
        NoRoom::Loading => "is loading a model",
        NoRoom::Busy(left) => {
            return format!("is busy: it would wait there for about {} s", left.as_secs().max(1));
        }
        NoRoom::Tokens => "has no room in its cache for this many tokens",
    };
    words.to_owned()
}
