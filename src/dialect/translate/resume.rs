//! A stream that goes on at another target, within the client's same stream.

use super::encoder::Body;
use super::heard::Heard;
use super::seam::Seam;
use super::text::{Fill, fill};
use super::{Decoder, Encoder, Outcome, Translation};
use crate::cause::Cause;
use crate::dialect::Dialect;
use crate::wire::Splitter;

impl Translation {
    /// Keeps in mind what is said.
    #[must_use]
    pub fn hearing(mut self, heard: Heard) -> Self {
        self.heard = Some(Box::new(heard));
        self
    }

    /// What it gives is thrown away: the server's own events go out as they come. It only follows them, so that it can
    /// go on in their stead: under the server's id.
    #[must_use]
    pub fn following(mut self) -> Self {
        self.encoder.adopts();
        self.follows = true;
        self
    }

    /// What was said, where it is kept in mind.
    #[must_use]
    pub fn heard(&self) -> Option<&Heard> {
        self.heard.as_deref()
    }

    /// The same, to take from.
    pub fn heard_mut(&mut self) -> Option<&mut Heard> {
        self.heard.as_deref_mut()
    }

    /// Whether the client's stream could go on: neither ended nor told of an error.
    #[must_use]
    pub const fn may_resume(&self) -> bool {
        self.encoder.is_open()
    }

    /// From here on another server's bytes come, and go on where the last one's broke. `false`: nobody reads its
    /// protocol. `prefilled` as for [`super::join`].
    pub fn goes_on(&mut self, server: Dialect, prefilled: bool) -> bool {
        let said = self.heard().map_or("", Heard::text);
        let seam = Seam::new(said, prefilled);
        let ready = self.turns_to(server);
        self.seam = Some(seam);
        self.encoder.turns_over();
        ready
    }

    /// From here on another server's whole answer comes, which the client is told first: it forgets the characters that
    /// it has.
    pub fn restarts(&mut self, server: Dialect, cause: Cause, out: &mut Vec<u8>) -> bool {
        let after = self.heard().map_or(0, Heard::characters);
        let ready = self.turns_to(server);
        self.seam = None;
        self.encoder.restart(after, cause, out);
        if let Some(heard) = self.heard_mut() {
            heard.forget();
        }
        ready
    }

    fn turns_to(&mut self, server: Dialect) -> bool {
        if std::mem::take(&mut self.follows)
            && let Body::Anthropic(stream) = &mut self.encoder.body
        {
            stream.stands_at(self.decoder.blocks());
        }
        self.splitter = Splitter::new(server.framing());
        self.event.clear();
        self.pieces.clear();
        self.failure = None;
        match Decoder::new(server) {
            Some(decoder) => self.decoder = decoder,
            None => return false,
        }
        true
    }
}

impl Encoder {
    const fn is_open(&self) -> bool {
        matches!(self.outcome, Outcome::Open)
    }

    fn adopts(&mut self) {
        self.common.adopts = true;
    }

    /// Another server's counts are added to those before.
    fn turns_over(&mut self) {
        let common = &mut self.common;
        common.before = common.usage;
        common.latest = super::Usage::default();
        (common.logprobs, common.finish, common.choice) = (None, None, 0);
    }

    fn restart(&mut self, after: u64, cause: Cause, out: &mut Vec<u8>) {
        self.turns_over();
        let mut told = Vec::new();
        let values = [Fill::Number(after), Fill::Text(cause.as_str())];
        fill(&mut told, "{\"restart\":{\"after\":$,\"cause\":$}}", &values);
        let told = String::from_utf8(told).unwrap_or_default();
        match &mut self.body {
            Body::Openai(stream) => stream.restart(&self.common, &told, out),
            Body::Responses(stream) => stream.restart(&self.common, &told, out),
            Body::Ollama(stream) => stream.restart(&self.common, &told, out),
            Body::Anthropic(stream) => stream.restart(&self.common, &told, out),
        }
    }
}
