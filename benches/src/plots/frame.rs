//! What the plots have in common: size, type, colours, a head.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A drawing.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Private caches.
pub(super) const PRIVATE: RGBColor = RGBColor(213, 94, 0);

/// The bare private map, which is no cache.
pub(super) const BARE: RGBColor = RGBColor(230, 159, 0);

/// This project's cache.
pub(super) const OURS: RGBColor = RGBColor(0, 114, 178);

/// Others.
pub(super) const OTHERS: RGBColor = RGBColor(120, 130, 140);

/// Text.
pub(super) const INK: RGBColor = RGBColor(30, 30, 30);

/// Text that says less.
pub(super) const PALE: RGBColor = RGBColor(95, 95, 95);

/// Lines of the grid.
pub(super) const GRID: RGBColor = RGBColor(215, 215, 215);

/// The height of the head.
const HEAD: u32 = 108;

/// Letters of this size and colour, set from `horizontal` and middle.
pub(super) fn letters(size: i32, colour: RGBColor, horizontal: HPos) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour).pos(Pos::new(horizontal, VPos::Center))
}

/// Draws a plot of this size: white, with a title and a line below it, and what `body` draws below that.
pub(super) fn draw(
    size: (u32, u32),
    title: &str,
    below: &str,
    unverified: bool,
    body: impl FnOnce(&Area<'_>) -> Result<(), String>,
) -> Result<String, String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).map_err(said)?;
        let (head, rest) = area.split_vertically(HEAD);
        head.draw(&Text::new(title, (32, 36), letters(32, INK, HPos::Left))).map_err(said)?;
        head.draw(&Text::new(below, (32, 78), letters(20, PALE, HPos::Left))).map_err(said)?;
        if unverified {
            let red = RGBColor(200, 0, 0);
            let at = (size.0 as i32 - 32, 36);
            head.draw(&Text::new("unverified", at, letters(32, red, HPos::Right))).map_err(said)?;
        }
        body(&rest)?;
        area.present().map_err(said)?;
    }
    Ok(svg)
}

/// An error as text.
pub(super) fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// One bar of a bar chart.
pub(super) struct Bar {
    /// Which group of bars it belongs to, from the top.
    pub(super) group: usize,
    /// Which bar of the group, and of how many.
    pub(super) place: (usize, usize),
    /// How long it is.
    pub(super) value: f64,
    /// What stands at its end.
    pub(super) label: String,
    /// Its colour.
    pub(super) colour: RGBColor,
    /// How thickly it is painted, from 0 to 1.
    pub(super) strength: f64,
}

/// Width for the names of the groups, and for the labels at the ends of the bars.
pub(super) struct Margins {
    pub(super) names: i32,
    pub(super) labels: i32,
}

/// Bars from the left, under one another in named groups. `position` brings a value to 0 to 1; `ticks` are lines of the grid
/// with what stands below them.
pub(super) fn bars(
    area: &Area<'_>,
    names: &[String],
    bars: &[Bar],
    margins: &Margins,
    position: impl Fn(f64) -> f64,
    ticks: &[(f64, String)],
) -> Result<(), String> {
    const FOOT: i32 = 50;
    let (width, height) = area.dim_in_pixel();
    let (left, right) = (margins.names, width as i32 - margins.labels);
    let floor = height as i32 - FOOT;
    let x = |value: f64| left + (position(value).clamp(0.0, 1.0) * f64::from(right - left)) as i32;
    for (value, text) in ticks {
        area.draw(&PathElement::new([(x(*value), 0), (x(*value), floor)], GRID)).map_err(said)?;
        let style = letters(18, PALE, HPos::Center);
        area.draw(&Text::new(text.as_str(), (x(*value), floor + 18), &style)).map_err(said)?;
    }
    let group = f64::from(floor) / names.len().max(1) as f64;
    for (at, name) in names.iter().enumerate() {
        let middle = ((at as f64 + 0.5) * group) as i32;
        let style = letters(20, INK, HPos::Right);
        area.draw(&Text::new(name.as_str(), (left - 12, middle), &style)).map_err(said)?;
    }
    for bar in bars {
        let (place, of) = bar.place;
        let thick = group * 0.76 / of as f64;
        let top = bar.group as f64 * group + group * 0.12 + place as f64 * thick;
        let (top, bottom) = (top as i32 + 1, (top + thick) as i32);
        let end = x(bar.value);
        let paint = bar.colour.mix(bar.strength).filled();
        area.draw(&Rectangle::new([(left, top), (end, bottom)], paint)).map_err(said)?;
        let style = letters(18, INK, HPos::Left);
        area.draw(&Text::new(bar.label.as_str(), (end + 8, (top + bottom) / 2), &style)).map_err(said)?;
    }
    area.draw(&PathElement::new([(left, 0), (left, floor)], INK)).map_err(said)
}

/// A legend: a patch and a text each, from `at` to the right.
pub(super) fn legend(area: &Area<'_>, at: (i32, i32), items: &[(RGBAColor, &str)]) -> Result<(), String> {
    let (mut x, y) = at;
    for (colour, text) in items {
        area.draw(&Rectangle::new([(x, y - 8), (x + 16, y + 8)], colour.filled())).map_err(said)?;
        area.draw(&Text::new(*text, (x + 24, y), letters(18, INK, HPos::Left))).map_err(said)?;
        x += 24 + 10 * text.chars().count() as i32 + 28;
    }
    Ok(())
}

/// 1234567 as 1,234,567.
pub(super) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_cut_into_thousands() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
