//! What a model needs once it is loaded: weights, cache for tokens, graph, by the model's own numbers.

/// What a model is made of, as far as its memory goes. Unknown numbers are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Weights, in KiB: the files' size.
    pub weights: u32,
    /// The image projector's, in KiB.
    pub projector: u32,
    /// Context that it was trained for, in tokens.
    pub context: u32,
    /// `num_ctx` of its own parameters (Ollama's Modelfile), in tokens.
    pub num_ctx: Option<u32>,
}

/// How it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Tokens of context a slot has.
    pub context: u32,
    /// Slots.
    pub parallel: u32,
}

/// What `shape` needs, in KiB, before anything was learned of it.
#[must_use]
pub fn need(shape: &Shape, load: &Load) -> u32 {
    let _ = load;
    shape.weights
}
