//! A JSON value that grows by deltas. What a server wrote stays as it wrote it: numbers keep their digits, strings their
//! escapes.

use crate::limits::ANSWER_CALLS;
use crate::wire::json::{Cursor, Stop};

/// A value in the making.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A value as it stands.
    Raw(Vec<u8>),
    /// A string's inside, escapes kept: what deltas add is appended.
    Text(Vec<u8>),
    /// An array: what deltas add is appended.
    List(Vec<Node>),
    /// An object: what deltas add goes to the member of its name.
    Object(Members),
}

/// An object's members, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Members(Vec<(Vec<u8>, Node)>);

/// Why a delta cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The text is no JSON, or nested too deep.
    Bad,
    /// A member has another type than before, so that the two cannot be one.
    Type,
    /// More calls than [`ANSWER_CALLS`].
    Calls,
}

impl From<Unfit> for Stop {
    /// For closures of a [`Cursor`], which stop by its own error; the caller keeps the real one.
    fn from(_: Unfit) -> Self {
        Stop::Bad
    }
}

/// Strings that come in parts: a later one goes on with an earlier one. All others are said anew.
const TEXTS: [&[u8]; 12] = [
    b"content",
    b"text",
    b"response",
    b"refusal",
    b"arguments",
    b"input",
    b"partial_json",
    b"signature",
    b"transcript",
    b"data",
    b"summary",
    b"code",
];

/// Whether a string member comes in parts. Thinking has many names.
fn is_text(key: &[u8]) -> bool {
    TEXTS.contains(&key)
        || [&b"reasoning"[..], b"thinking", b"thought"].iter().any(|name| key.starts_with(name))
}

impl Node {
    fn is_nothing(&self) -> bool {
        match self {
            Node::Raw(raw) => raw == b"null",
            Node::Text(text) => text.is_empty(),
            Node::List(list) => list.is_empty(),
            Node::Object(_) => false,
        }
    }

    /// As JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Node::Raw(raw) => out.extend_from_slice(raw),
            Node::Text(text) => {
                out.push(b'"');
                out.extend_from_slice(text);
                out.push(b'"');
            }
            Node::List(list) => {
                out.push(b'[');
                for (at, node) in list.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    node.write(out);
                }
                out.push(b']');
            }
            Node::Object(members) => members.write(out, b"{"),
        }
    }
}

impl Members {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Node> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, node)| node)
    }

    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Node> {
        self.0.iter_mut().find(|(known, _)| known == key).map(|(_, node)| node)
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        self.0.retain(|(known, _)| known != key);
    }

    /// Whether there is such a member, and it says something.
    pub(super) fn says(&self, key: &[u8]) -> bool {
        self.get(key).is_some_and(|node| !node.is_nothing())
    }

    /// Whether the member is this string.
    pub(super) fn is(&self, key: &[u8], text: &[u8]) -> bool {
        match self.get(key) {
            Some(Node::Text(inside)) => inside == text,
            Some(Node::Raw(raw)) => {
                raw.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) == Some(text)
            }
            _ => false,
        }
    }

    /// Sets a member, whatever it was. Returns how many bytes more it takes.
    pub(super) fn set(&mut self, key: &[u8], node: Node) -> usize {
        let bytes = |node: &Node| match node {
            Node::Raw(bytes) | Node::Text(bytes) => bytes.len(),
            Node::List(_) | Node::Object(_) => 0,
        };
        let new = bytes(&node);
        match self.get_mut(key) {
            Some(old) => new.saturating_sub(bytes(&std::mem::replace(old, node))),
            None => {
                self.0.push((key.to_vec(), node));
                new + key.len()
            }
        }
    }

    /// Sets a member to a value as it stands; a `null` only where there was none.
    pub(super) fn replace(&mut self, key: &[u8], raw: &[u8]) -> usize {
        if raw == b"null" && self.get(key).is_some() {
            return 0;
        }
        self.set(key, Node::Raw(raw.to_vec()))
    }

    /// Adds each member of the object at the cursor. Returns how many bytes were added.
    ///
    /// # Errors
    /// Why they cannot be.
    pub(super) fn grow<'a>(&mut self, text: &'a [u8], c: &mut Cursor<'a>) -> Result<usize, Unfit> {
        let (mut added, mut unfit) = (0, None);
        let read = c.object(|key, c| {
            added += self.member(key, text, c).inspect_err(|why| unfit = Some(*why))?;
            Ok(())
        });
        match (unfit, read) {
            (Some(unfit), _) => Err(unfit),
            (None, Ok(_)) => Ok(added),
            (None, Err(_)) => Err(Unfit::Bad),
        }
    }

    /// Adds the value at the cursor to the member of this name.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(super) fn member<'a>(
        &mut self,
        key: &[u8],
        text: &'a [u8],
        c: &mut Cursor<'a>,
    ) -> Result<usize, Unfit> {
        let known = self.get(key).is_some_and(|node| !node.is_nothing());
        match c.peek().map_err(|_| Unfit::Bad)? {
            b'"' => {
                let string = c.string().map_err(|_| Unfit::Bad)?.filter(|string| string.whole);
                let inside = string.ok_or(Unfit::Bad)?.raw;
                match self.get_mut(key) {
                    // Some servers repeat a call's name and its id in each part.
                    Some(Node::Text(_)) if known && !is_text(key) => {
                        Ok(if inside.is_empty() { 0 } else { self.set(key, Node::Text(inside.to_vec())) })
                    }
                    Some(Node::Text(text)) => {
                        text.extend_from_slice(inside);
                        Ok(inside.len())
                    }
                    _ if known => Err(Unfit::Type),
                    _ => Ok(self.set(key, Node::Text(inside.to_vec()))),
                }
            }
            b'{' => {
                if !known && !matches!(self.get(key), Some(Node::Object(_))) {
                    self.set(key, Node::Object(Members::default()));
                }
                match self.get_mut(key) {
                    Some(Node::Object(members)) => members.grow(text, c),
                    _ => Err(Unfit::Type),
                }
            }
            b'[' => {
                if !known && !matches!(self.get(key), Some(Node::List(_))) {
                    self.set(key, Node::List(Vec::new()));
                }
                match self.get_mut(key) {
                    Some(Node::List(list)) => elements(list, key == b"tool_calls", text, c),
                    _ => Err(Unfit::Type),
                }
            }
            _ => {
                let at = c.value().map_err(|_| Unfit::Bad)?;
                Ok(self.replace(key, text.get(at).unwrap_or_default()))
            }
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, open: &[u8]) {
        out.extend_from_slice(open);
        for (at, (key, node)) in self.0.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.push(b'"');
            out.extend_from_slice(key);
            out.extend_from_slice(b"\":");
            node.write(out);
        }
        out.push(b'}');
    }
}

/// Adds the elements at the cursor. Calls with a number or an id go on with the one that has it; all else is appended.
fn elements<'a>(
    list: &mut Vec<Node>,
    calls: bool,
    text: &'a [u8],
    c: &mut Cursor<'a>,
) -> Result<usize, Unfit> {
    let (mut added, mut unfit) = (0, None);
    let read = c.array(|c| {
        let at = c.value()?;
        let element = text.get(at).unwrap_or_default();
        let grown = if calls { call(list, element) } else { None };
        added += match grown {
            Some(grown) => grown.inspect_err(|why| unfit = Some(*why))?,
            None => {
                list.push(Node::Raw(element.to_vec()));
                element.len()
            }
        };
        Ok(())
    });
    match (unfit, read) {
        (Some(unfit), _) => Err(unfit),
        (None, Ok(_)) => Ok(added),
        (None, Err(_)) => Err(Unfit::Bad),
    }
}

/// Adds to a call by its `index` and its `id`: some servers number each call 0, some leave later ids out. `None`: it has
/// no `index`, so it is whole.
fn call(list: &mut Vec<Node>, element: &[u8]) -> Option<Result<usize, Unfit>> {
    let mut delta = Members::default();
    if let Err(unfit) = delta.grow(element, &mut Cursor::new(element)) {
        return Some(Err(unfit));
    }
    let index = delta.get(b"index")?.clone();
    let same = |node: &&mut Node| {
        let Node::Object(known) = node else { return false };
        let another = delta.says(b"id") && known.says(b"id") && known.get(b"id") != delta.get(b"id");
        known.get(b"index") == Some(&index) && !another
    };
    // The last one of a number is the one that grows.
    if let Some(Node::Object(known)) = list.iter_mut().rev().find(same) {
        return Some(known.grow(element, &mut Cursor::new(element)));
    }
    if list.len() >= ANSWER_CALLS as usize {
        return Some(Err(Unfit::Calls));
    }
    list.push(Node::Object(delta));
    Some(Ok(element.len()))
}
