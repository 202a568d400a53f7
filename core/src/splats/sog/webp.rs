//! A small encoder of lossless WebP pictures (VP8L; RFC 9649), for pictures that hold numbers.
//!
//! What is to be seen in a picture compresses by its edges and repetitions; numbers of codebooks and bytes of quaternions have
//! none, and the usual ways to find them make such pictures larger. Here each channel is coded with the shortest prefix codes,
//! behind those transforms that help: each pixel less its neighbour, and red and blue less green. Which do is tried.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rayon::prelude::*;

use super::picture::Picture;

/// Symbols of the green channel: bytes, then lengths of repetitions, which are not used.
const GREEN_SYMBOLS: usize = 256 + 24;
/// The longest code of a symbol, and of the length of a code, in bits.
const LONGEST: u8 = 15;
const LONGEST_OF_LENGTHS: u8 = 7;
/// In which order the lengths of the codes of lengths are stored.
const LENGTH_ORDER: [usize; 19] = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// What follows a transform's presence bit: its kind.
const PREDICTOR: u32 = 0;
const SUBTRACT_GREEN: u32 = 2;
/// Blocks of the largest size share a predictor, as a logarithm above 2.
const LARGEST_BLOCK: u32 = 7;

/// What a pixel is predicted to be, by the number that the format has for it.
#[derive(Clone, Copy, PartialEq)]
enum Predictor {
    Left = 1,
    Above = 2,
}

/// How the pixels are changed before they are coded.
#[derive(Clone, Copy)]
struct Transforms {
    subtract_green: bool,
    predictor: Option<Predictor>,
}

const CHOICES: [Transforms; 6] = {
    const fn choice(subtract_green: bool, predictor: Option<Predictor>) -> Transforms {
        Transforms { subtract_green, predictor }
    }
    [
        choice(false, None),
        choice(false, Some(Predictor::Left)),
        choice(false, Some(Predictor::Above)),
        choice(true, None),
        choice(true, Some(Predictor::Left)),
        choice(true, Some(Predictor::Above)),
    ]
};

/// The file of a picture, whose sides are 1 to 16383: the format has one more, which some decoders take for 0.
pub(super) fn encode(picture: &Picture) -> Vec<u8> {
    let tried = CHOICES.par_iter().map(|choice| {
        let histograms = Histograms::of(&transformed(picture, *choice));
        (histograms.bits(), histograms, *choice)
    });
    let best = tried.min_by(|a, b| a.0.total_cmp(&b.0));
    let Some((_, histograms, transforms)) = best else { return Vec::new() }; // there are six
    let data = stream(picture, &histograms, transforms);
    let padding = data.len() % 2;
    let mut file = b"RIFF".to_vec();
    // At most 16 bits a channel.
    file.extend(((4 + 8 + data.len() + padding) as u32).to_le_bytes());
    file.extend(b"WEBPVP8L");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(&data);
    file.resize(file.len() + padding, 0);
    file
}

fn stream(picture: &Picture, histograms: &Histograms, transforms: Transforms) -> Vec<u8> {
    let mut out = Bits::default();
    out.write(0x2f, 8);
    out.write(picture.width as u32 - 1, 14);
    out.write(picture.height as u32 - 1, 14);
    let has_alpha = picture.pixels.par_iter().any(|pixel| pixel[3] != 255);
    out.write(u32::from(has_alpha), 1);
    out.write(0, 3); // the version
    if transforms.subtract_green {
        out.write(1, 1);
        out.write(SUBTRACT_GREEN, 2);
    }
    if let Some(predictor) = transforms.predictor {
        out.write(1, 1);
        out.write(PREDICTOR, 2);
        out.write(LARGEST_BLOCK, 3);
        // A picture of predictors, each in the green of a pixel: all the same, which takes no bits.
        out.write(0, 1);
        for symbol in [predictor as u8, 0, 0, 0, 0] {
            single_symbol(&mut out, symbol);
        }
    }
    out.write(0, 1); // no more transforms
    out.write(0, 1); // no cache of colours
    out.write(0, 1); // the same codes everywhere
    let codes = histograms.codes();
    codes.iter().for_each(|code| code.write(&mut out));
    single_symbol(&mut out, 0); // distances, of which there are none
    let [green, red, blue, alpha] = &codes;
    for [r, g, b, a] in transformed(picture, transforms) {
        for (code, value) in [(green, g), (red, r), (blue, b), (alpha, a)] {
            out.write(code.bits[usize::from(value)].into(), code.lengths[usize::from(value)].into());
        }
    }
    out.finish()
}

/// The pixels that are coded.
fn transformed(picture: &Picture, transforms: Transforms) -> Vec<[u8; 4]> {
    let Picture { width, pixels, .. } = picture;
    let value = |place: usize| {
        let [r, g, b, a] = pixels[place];
        if transforms.subtract_green { [r.wrapping_sub(g), g, b.wrapping_sub(g), a] } else { [r, g, b, a] }
    };
    let Some(predictor) = transforms.predictor else { return (0..pixels.len()).map(value).collect() };
    let predicted = |place: usize| match (place / width, place % width, predictor) {
        // The format says how it begins: with opaque black, to the right along the first row, and down the first column.
        (0, 0, _) => [0, 0, 0, 255],
        (0, _, _) => value(place - 1),
        (_, 0, _) | (_, _, Predictor::Above) => value(place - width),
        (_, _, Predictor::Left) => value(place - 1),
    };
    let less = |a: [u8; 4], b: [u8; 4]| std::array::from_fn(|k| a[k].wrapping_sub(b[k]));
    (0..pixels.len()).map(|place| less(value(place), predicted(place))).collect()
}

/// How often each symbol of green, red, blue and alpha occurs: the order of the format.
struct Histograms([Vec<u32>; 4]);

impl Histograms {
    fn of(pixels: &[[u8; 4]]) -> Self {
        let mut counts = [GREEN_SYMBOLS, 256, 256, 256].map(|symbols| vec![0; symbols]);
        for [r, g, b, a] in pixels {
            for (count, value) in counts.iter_mut().zip([g, r, b, a]) {
                count[usize::from(*value)] += 1;
            }
        }
        Self(counts)
    }

    /// The least number of bits that so frequent symbols take.
    fn bits(&self) -> f64 {
        let channel = |counts: &Vec<u32>| {
            let total = f64::from(counts.iter().sum::<u32>());
            let bits = |count: u32| f64::from(count) * (total / f64::from(count)).log2();
            counts.iter().filter(|count| **count > 0).map(|count| bits(*count)).sum::<f64>()
        };
        self.0.iter().map(channel).sum()
    }

    fn codes(&self) -> [Code; 4] {
        [0, 1, 2, 3].map(|channel| Code::new(&self.0[channel], LONGEST))
    }
}

/// A prefix code.
struct Code {
    /// In bits; 0 for what does not occur, and for a single symbol, which takes none.
    lengths: Vec<u8>,
    /// As they stand in the file, the first bit lowest.
    bits: Vec<u16>,
    /// The symbol, if only one occurs.
    only: Option<usize>,
}

impl Code {
    fn new(counts: &[u32], longest: u8) -> Self {
        let mut used = counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(symbol, _)| symbol);
        let only = match (used.next(), used.next()) {
            (symbol, None) => Some(symbol.unwrap_or(0)),
            _ => None,
        };
        let lengths = if only.is_some() { vec![0; counts.len()] } else { lengths(counts, longest) };
        let mut next = [0u32; 17];
        for length in 1..=16usize {
            let shorter = lengths.iter().filter(|own| usize::from(**own) == length - 1 && **own > 0).count();
            next[length] = (next[length - 1] + shorter as u32) << 1;
        }
        let mut bits = vec![0; counts.len()];
        for (bits, length) in bits.iter_mut().zip(&lengths).filter(|(_, length)| **length > 0) {
            let code = &mut next[usize::from(*length)];
            *bits = (*code as u16).reverse_bits() >> (16 - length);
            *code += 1;
        }
        Self { lengths, bits, only }
    }

    fn write(&self, out: &mut Bits) {
        if let Some(symbol) = self.only {
            return single_symbol(out, symbol as u8); // no symbol beyond bytes is used
        }
        let tokens = tokens(&self.lengths);
        let mut counts = [0; 19];
        tokens.iter().for_each(|token| counts[usize::from(token.symbol)] += 1);
        let code = Self::new(&counts, LONGEST_OF_LENGTHS);
        // A code with a single symbol is written as one with a length, which its decoder takes no bits for.
        let length =
            |symbol: usize| if code.only == Some(symbol) { 1 } else { u32::from(code.lengths[symbol]) };
        let stored =
            LENGTH_ORDER.iter().rposition(|symbol| length(*symbol) > 0).map_or(4, |last| (last + 1).max(4));
        out.write(0, 1); // not one of the simplest codes
        out.write(stored as u32 - 4, 4);
        LENGTH_ORDER[..stored].iter().for_each(|symbol| out.write(length(*symbol), 3));
        out.write(0, 1); // lengths of all symbols follow
        for token in tokens {
            let symbol = usize::from(token.symbol);
            out.write(code.bits[symbol].into(), code.lengths[symbol].into());
            out.write(token.extra.into(), token.extra_bits.into());
        }
    }
}

/// A code with one symbol: nothing needs to be said about any pixel.
fn single_symbol(out: &mut Bits, symbol: u8) {
    out.write(0b01, 2); // a simple code, of one symbol
    out.write(1, 1); // of eight bits
    out.write(symbol.into(), 8);
}

/// The lengths of the shortest prefix code that is nowhere longer than `longest`, near enough: rare symbols are taken for more
/// frequent until it is not. At least two symbols occur.
fn lengths(counts: &[u32], longest: u8) -> Vec<u8> {
    let most = counts.iter().copied().max().unwrap_or(1);
    let mut least = 1;
    loop {
        let lengths = unbounded_lengths(
            &counts.iter().map(|&count| if count == 0 { 0 } else { count.max(least) }).collect::<Vec<_>>(),
        );
        // When all are equally frequent the code is balanced, and short enough.
        if least > most || lengths.iter().all(|length| *length <= longest) {
            return lengths;
        }
        least *= 2;
    }
}

/// Huffman's algorithm.
fn unbounded_lengths(counts: &[u32]) -> Vec<u8> {
    let mut heap: BinaryHeap<Reverse<(u64, usize)>> = counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(symbol, count)| Reverse((u64::from(*count), symbol)))
        .collect();
    // Of symbols, then of pairs as they are made: who is above.
    let mut parents = vec![usize::MAX; counts.len()];
    while let (Some(Reverse((a, first))), Some(Reverse((b, second)))) = (heap.pop(), heap.pop()) {
        let pair = parents.len();
        parents.push(usize::MAX);
        parents[first] = pair;
        parents[second] = pair;
        heap.push(Reverse((a + b, pair)));
        if heap.len() == 1 {
            break;
        }
    }
    // A pair is made after what it is made of: depths are known from the top down.
    let mut depths = vec![0u8; parents.len()];
    for node in (0..parents.len()).rev() {
        if let Some(parent) = depths.get(parents[node]) {
            depths[node] = parent.saturating_add(1);
        }
    }
    depths.truncate(counts.len());
    depths
}

/// A length of a code, or a repetition of one.
struct Token {
    symbol: u8,
    extra: u8,
    extra_bits: u8,
}

/// Lengths as the format stores them: 16 repeats the last one that is not zero, 17 and 18 are zeros.
fn tokens(lengths: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    // What the format begins with.
    let mut last = 8;
    for run in lengths.chunk_by(|a, b| a == b) {
        let (length, mut left) = (run[0], run.len());
        while left > 0 {
            let (symbol, least, most, extra_bits) = match length {
                0 if left >= 11 => (18, 11, 138, 7),
                0 if left >= 3 => (17, 3, 10, 3),
                _ if length != 0 && length == last && left >= 3 => (16, 3, 6, 2),
                _ => (length, 1, 1, 0),
            };
            let taken = left.min(most);
            tokens.push(Token { symbol, extra: (taken - least) as u8, extra_bits });
            left -= taken;
            if length != 0 {
                last = length;
            }
        }
    }
    tokens
}

/// Bits in the order of the format: the first is the lowest of the first byte.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    waiting: u64,
    count: u32,
}

impl Bits {
    /// At most 32 bits; those of `value` above them are zero or left out.
    fn write(&mut self, value: u32, count: u32) {
        let value = u64::from(value) & ((1 << count) - 1);
        self.waiting |= value << self.count;
        self.count += count;
        if self.count >= 32 {
            self.bytes.extend((self.waiting as u32).to_le_bytes());
            self.waiting >>= 32;
            self.count -= 32;
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.extend(&self.waiting.to_le_bytes()[..self.count.div_ceil(8) as usize]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn assert_kept(picture: Picture) -> usize {
        let file = encode(&picture);
        let back = Picture::decode(&file, |width, height| (width, height) == (picture.width, picture.height));
        assert!(back.unwrap().pixels == picture.pixels);
        file.len()
    }

    #[test]
    fn pictures_of_all_kinds_come_back() {
        let mut random = Random::new(3);
        for (width, height) in [(1, 1), (1, 7), (7, 1), (64, 5), (1000, 700), (16_383, 2)] {
            let mut kinds: Vec<Box<dyn FnMut(usize) -> [u8; 4]>> = vec![
                Box::new(|_| [7, 7, 7, 255]),
                Box::new(|k| [(k / 3) as u8, (k / 5) as u8, (k / 7) as u8, 255]),
                Box::new(|k| [0, 0, (k % 2) as u8, 252 + (k % 4) as u8]),
                Box::new(|_| (random.next_u64() as u32).to_le_bytes()),
            ];
            for kind in &mut kinds {
                let pixels = (0..width * height).map(kind).collect();
                assert_kept(Picture { width, height, pixels });
            }
        }
    }

    /// Symbols so rare that their codes would be longer than may be.
    #[test]
    fn rare_symbols_come_back() {
        let pixels = (0..1u32 << 20).map(|k| {
            let value = k.trailing_zeros().min(31) as u8;
            [value, value / 2, 31 - value, 255]
        });
        assert_kept(Picture { width: 1024, height: 1024, pixels: pixels.collect() });
    }

    /// What the entropy says, and not much more.
    #[test]
    fn pictures_are_as_small_as_can_be() {
        let mut random = Random::new(4);
        let mut normal = || (128.0 + 20.0 * random.normal()) as u8;
        let pixels: Vec<[u8; 4]> = (0..512 * 512).map(|_| [normal(), normal(), normal(), 255]).collect();
        // log2(20 √(2 π e)) bits a value.
        let least = 3.0 * (20.0 * (2.0 * std::f64::consts::PI * std::f64::consts::E).sqrt()).log2() / 8.0;
        let size = assert_kept(Picture { width: 512, height: 512, pixels }) as f64 / (512.0 * 512.0);
        assert!(size < 1.02 * least, "{size} bytes a pixel, {least} at least");
    }
}
