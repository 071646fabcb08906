//! `hubbub completions` and `hubbub man`: what shells and readers of manuals are given.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output::print;

pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hubbub", &mut script);
    print(script)
}

/// Prints the page of `hubbub`, or writes that of every command into a directory.
pub(crate) fn man(out: Option<&Path>) -> anyhow::Result<()> {
    let Some(dir) = out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).context("writing the page")?;
        return print(page);
    };
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    clap_mangen::generate_to(Cli::command(), dir).with_context(|| format!("writing to {}", dir.display()))
}
