//! Our analyzer as a tokenizer of tantivy.

use kukuri_search::analyzer::for_each_token;
use tantivy::{
    Index,
    tokenizer::{TextAnalyzer, Token, TokenStream, Tokenizer},
};

/// The name of the tokenizer in the schema.
pub(crate) const ANALYZER: &str = "kukuri";

/// Makes the tokenizer known to an index.
pub(crate) fn register(index: &Index) {
    index.tokenizers().register(ANALYZER, TextAnalyzer::from(Analyzer::default()));
}

/// Keeps its memory from text to text.
#[derive(Clone, Default)]
struct Analyzer {
    /// The texts of all tokens, one after the other, and where each ends.
    texts: String,
    ends: Vec<usize>,
    token: Token,
}

impl Tokenizer for Analyzer {
    type TokenStream<'t> = Tokens<'t>;

    fn token_stream<'t>(&'t mut self, text: &'t str) -> Tokens<'t> {
        let Self { texts, ends, token } = self;
        texts.clear();
        ends.clear();
        for_each_token(text, |text, _| {
            texts.push_str(text);
            ends.push(texts.len());
        });
        Tokens { texts, ends, next: 0, begin: 0, token }
    }
}

struct Tokens<'t> {
    texts: &'t str,
    ends: &'t [usize],
    next: usize,
    /// Where the next token begins.
    begin: usize,
    token: &'t mut Token,
}

impl TokenStream for Tokens<'_> {
    fn advance(&mut self) -> bool {
        let Some(text) = self.ends.get(self.next).and_then(|end| self.texts.get(self.begin..*end)) else {
            return false;
        };
        self.token.text.clear();
        self.token.text.push_str(text);
        // Offsets stay 0: snippets are cut from the event.
        self.token.position = self.next;
        self.begin += text.len();
        self.next += 1;
        true
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}
