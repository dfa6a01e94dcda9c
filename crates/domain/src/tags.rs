//! The tags of an event in flat storage: three allocations, regardless of the number of items.
//!
//! `Vec<Vec<String>>` would allocate once per item; events with fifty tags are common, and each passes through the
//! parser, the verifier and the store.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, SeqAccess},
};

/// All tags of an event, in order.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tags {
    /// The text of every item, one after the other.
    text: String,
    /// Where each item ends in `text`.
    item_ends: Vec<u32>,
    /// Where each tag ends in `item_ends`.
    tag_ends: Vec<u32>,
}

/// One tag: a list of strings, the first of which is its name.
#[derive(Clone, Copy)]
pub struct Tag<'a> {
    tags: &'a Tags,
    first: usize,
    end: usize,
}

/// A tag name of one letter: filters match by it (`#e`), and stores index it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Letter(u8);

impl Letter {
    /// `d`: the identifier of an addressable event.
    pub const D: Self = Self(b'd');
    /// `e`: an event.
    pub const E: Self = Self(b'e');
    /// `p`: a person.
    pub const P: Self = Self(b'p');
    /// `t`: a topic or hashtag.
    pub const T: Self = Self(b't');

    /// The letter of a name that is exactly one ASCII letter.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.as_bytes() {
            [letter] if letter.is_ascii_alphabetic() => Some(Self(*letter)),
            _ => None,
        }
    }

    /// Its ASCII code.
    pub const fn code(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        char::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Tags {
    /// The number of tags.
    pub fn len(&self) -> usize {
        self.tag_ends.len()
    }

    /// Whether there are no tags.
    pub fn is_empty(&self) -> bool {
        self.tag_ends.is_empty()
    }

    /// The text of all items together, in bytes.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Whether any item holds this character.
    pub fn contains_char(&self, character: char) -> bool {
        self.text.contains(character)
    }

    /// The tags in order.
    pub fn iter(&self) -> impl Iterator<Item = Tag<'_>> {
        let mut first = 0;
        self.tag_ends.iter().map(move |&end| {
            let tag = Tag { tags: self, first, end: end as usize };
            first = tag.end;
            tag
        })
    }

    /// The values (second items) of all tags with this name. Skips tags without a value.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |tag| tag.name() == Some(name)).filter_map(|tag| tag.value())
    }

    /// The values that filters can match: those of every tag with a one-letter name.
    pub fn indexed(&self) -> impl Iterator<Item = (Letter, &str)> {
        self.iter().filter_map(|tag| Some((Letter::from_name(tag.name()?)?, tag.value()?)))
    }

    /// Preallocates for the tags of an ordinary event. Growing step by step would cost a third of the parsing time.
    fn with_room() -> Self {
        Self { text: String::with_capacity(512), item_ends: Vec::with_capacity(24), tag_ends: Vec::with_capacity(8) }
    }

    fn item(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.item_ends[before] as usize);
        &self.text[start..self.item_ends[index] as usize]
    }

    fn push_item(&mut self, item: &str) {
        self.text.push_str(item);
        self.item_ends.push(self.text.len() as u32);
    }

    fn end_tag(&mut self) {
        self.tag_ends.push(self.item_ends.len() as u32);
    }
}

impl<'a> Tag<'a> {
    /// The first item.
    pub fn name(&self) -> Option<&'a str> {
        self.items().next()
    }

    /// The second item.
    pub fn value(&self) -> Option<&'a str> {
        self.items().nth(1)
    }

    /// All items.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &'a str> + use<'a> {
        let tags = self.tags;
        (self.first..self.end).map(|index| tags.item(index))
    }

    /// The text of all items together, in bytes.
    pub fn text_bytes(&self) -> usize {
        self.items().map(str::len).sum()
    }
}

impl<Item: AsRef<str>, Items: IntoIterator<Item = Item>> FromIterator<Items> for Tags {
    fn from_iter<I: IntoIterator<Item = Items>>(tags: I) -> Self {
        let mut flat = Self::default();
        for tag in tags {
            tag.into_iter().for_each(|item| flat.push_item(item.as_ref()));
            flat.end_tag();
        }
        flat
    }
}

impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|tag| tag.items().collect::<Vec<_>>())).finish()
    }
}

impl<'de> Deserialize<'de> for Tags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> de::Visitor<'de> for All {
            type Value = Tags;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tags: a list of lists of strings")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tags, A::Error> {
                let mut tags = Tags::with_room();
                while list.next_element_seed(One(&mut tags))?.is_some() {}
                Ok(tags)
            }
        }

        struct One<'t>(&'t mut Tags);
        impl<'de> DeserializeSeed<'de> for One<'_> {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_seq(self)
            }
        }
        impl<'de> de::Visitor<'de> for One<'_> {
            type Value = ();
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tag: a list of strings")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
                while list.next_element_seed(Item(self.0))?.is_some() {}
                self.0.end_tag();
                Ok(())
            }
        }

        struct Item<'t>(&'t mut Tags);
        impl<'de> DeserializeSeed<'de> for Item<'_> {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_str(self)
            }
        }
        impl de::Visitor<'_> for Item<'_> {
            type Value = ();
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tag item: a string")
            }
            fn visit_str<E: de::Error>(self, item: &str) -> Result<(), E> {
                self.0.push_item(item);
                Ok(())
            }
        }

        deserializer.deserialize_seq(All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_keep_the_order_of_items_and_round_trip_through_json() {
        let nested = vec![vec!["e", "x", ""], vec![], vec!["t", "東京"], vec!["alt", "y"], vec!["d"]];
        let tags: Tags = nested.iter().cloned().collect();
        let back: Vec<Vec<&str>> = tags.iter().map(|tag| tag.items().collect()).collect();
        assert_eq!(back, nested);
        assert_eq!(tags.len(), 5);
        assert_eq!(tags.values("t").collect::<Vec<_>>(), ["東京"]);
        assert_eq!(tags.values("d").count(), 0, "a tag without a value has none");
        let letters: Vec<_> = tags.indexed().map(|(letter, value)| (letter.code(), value)).collect();
        assert_eq!(letters, [(b'e', "x"), (b't', "東京")]);

        let json = serde_json::to_string(&nested).unwrap();
        assert_eq!(serde_json::from_str::<Tags>(&json).unwrap(), tags);
    }
}
