//! The contents of tables, independent of how they are shown.

use std::fmt;

/// What a figure means to who watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// Nothing in particular.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// Worth a look.
    Warning,
    /// Nothing is sent, or will be.
    Bad,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Without control characters: a name must not steer a terminal.
    pub text: String,
    pub mood: Mood,
}

impl Cell {
    /// One with a meaning.
    pub fn new(text: impl Into<String>, mood: Mood) -> Cell {
        let text = text.into().replace(char::is_control, "?");
        Cell { text, mood }
    }

    /// One that stands out only if `wrong`.
    pub fn warning_if(wrong: bool, text: String) -> Cell {
        Cell::new(text, if wrong { Mood::Warning } else { Mood::Plain })
    }

    /// A figure, or a dash where it is not known.
    pub fn known<T>(figure: Option<T>, text: impl FnOnce(T) -> String) -> Cell {
        figure.map_or_else(|| Cell::from("-"), |figure| Cell::from(text(figure)))
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::new(text, Mood::Plain)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub head: &'static str,
    /// Whether it is aligned to the right, as figures are.
    pub right: bool,
    /// If there is no room for all columns, those of the highest rank are dropped first.
    pub rank: u8,
}

pub const fn words(head: &'static str, rank: u8) -> Column {
    Column {
        head,
        right: false,
        rank,
    }
}

pub const fn figures(head: &'static str, rank: u8) -> Column {
    Column {
        head,
        right: true,
        rank,
    }
}

/// Columns between which there is this much space.
const GAP: usize = 2;

/// A table; each row has as many cells as there are columns.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
}

impl Sheet {
    /// A table without rows.
    pub fn new<const N: usize>(columns: [Column; N]) -> Sheet {
        Sheet {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// The width of a column, in characters.
    pub fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.text.chars().count()).max();
        let head = self.columns.get(column).map(|column| column.head.len());
        widest.max(head).unwrap_or_default()
    }

    /// The part of it that fits into `width` characters: the columns of the lowest ranks, and at
    /// least one.
    pub fn fit(mut self, width: usize) -> Sheet {
        loop {
            let widths = (0..self.columns.len()).map(|column| self.width(column) + GAP);
            if self.columns.len() < 2 || widths.sum::<usize>() <= width + GAP {
                return self;
            }
            let ranks = self.columns.iter().enumerate();
            let dropped = ranks.max_by_key(|(_, column)| column.rank);
            let Some((dropped, _)) = dropped else {
                return self;
            };
            self.columns.remove(dropped);
            for row in &mut self.rows {
                row.remove(dropped);
            }
        }
    }
}

/// Aligned, for printing.
impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.columns.len()).map(|c| self.width(c)).collect();
        let heads = self.columns.iter().map(|column| column.head).collect();
        let rows = self.rows.iter();
        let rows = rows.map(|row| row.iter().map(|cell| cell.text.as_str()).collect());
        for row in std::iter::once::<Vec<&str>>(heads).chain(rows) {
            let mut line = String::new();
            for ((text, width), column) in row.iter().zip(&widths).zip(&self.columns) {
                line += &match column.right {
                    true => format!("{text:>width$}"),
                    false => format!("{text:<width$}"),
                };
                line += "  ";
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let mut sheet = Sheet::new([words("PATH", 0), figures("LOSS", 2), figures("RATE", 1)]);
        sheet.row(vec![
            "satellite".into(),
            "0.1 %".into(),
            "40.0 Mbit/s".into(),
        ]);
        sheet.row(vec!["lte".into(), "-".into(), "8.0 Mbit/s".into()]);
        sheet
    }

    #[test]
    fn what_is_printed_is_aligned() {
        let expected = "\
PATH        LOSS         RATE
satellite  0.1 %  40.0 Mbit/s
lte            -   8.0 Mbit/s
";
        assert_eq!(sheet().to_string(), expected);
    }

    #[test]
    fn narrow_tables_lose_what_matters_least() {
        let heads = |width| -> Vec<&str> {
            let columns = sheet().fit(width).columns;
            columns.iter().map(|column| column.head).collect()
        };
        assert_eq!(heads(29), ["PATH", "LOSS", "RATE"]);
        assert_eq!(heads(28), ["PATH", "RATE"]);
        assert_eq!(heads(21), ["PATH"]);
        assert_eq!(heads(0), ["PATH"]);
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        let cell = Cell::from("sat\x1b]0;owned\x07\u{9b}31m");
        assert_eq!(cell.text, "sat?]0;owned??31m");
    }
}
