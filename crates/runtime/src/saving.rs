//! A trainer's parameters and state between its ranks, files and other trainers, block by block.
//!
//! Of every element one rank is the owner: among those that hold it, the one whose coordinate is 0 on all axes that do not
//! shard the tensor. Owners write; everybody reads what it holds. On several hosts the file's directory must be one that all
//! of them see. All ranks go from phase to phase together, and stop together if one of them cannot go on.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use shardgrad_core::Block;

use crate::block_file::{BlockFile, places};
use crate::checkpoint::{About, fits, io_error, not_one, sync_directory};
use crate::error::Error;
use crate::tensor::Data;
use crate::trainer::{Placed, Trainer};

impl Trainer {
    /// Writes parameters and state to a checkpoint file, block by block: no tensor is put together anywhere. The file is
    /// that of [`Checkpoint::write`](crate::Checkpoint::write), and replaces an old one only when it is whole.
    ///
    /// # Errors
    /// Whatever the file system reports, on any rank; the old file is then as it was. An earlier failure.
    pub fn save(&mut self, path: &Path, model: &str, step: u64) -> Result<(), Error> {
        let file = BlockFile::new(About::of(self, model, step), self.stored())
            .map_err(|problem| not_one(path, &problem))?;
        let places = places(path).map_err(|e| io_error(path, &e));
        self.ranks.together(places.as_ref().map(|_| ()).map_err(Error::clone))?;
        let (partial, place) = places?;
        let first = self.ranks.here(self.mesh.size()).start == 0;
        let made = if first { file.create(&partial) } else { Ok(()) };
        let made = made.map_err(|e| io_error(path, &e));
        let saved = self
            .ranks
            .together(made)
            .and_then(|()| {
                let written = self.write_to(&file, &partial);
                self.ranks.together(written)
            })
            .and_then(|()| {
                let renamed = if first { fs::rename(&partial, &place) } else { Ok(()) };
                self.ranks.together(renamed.map_err(|e| io_error(path, &e)))
            });
        if first {
            match &saved {
                Ok(()) => sync_directory(&place),
                // The first failure is what counts.
                Err(_) => drop(fs::remove_file(&partial)),
            }
        }
        saved
    }

    /// Writes what the ranks that are here own.
    fn write_to(&mut self, file: &BlockFile, path: &Path) -> Result<(), Error> {
        let failed = |e: std::io::Error| io_error(path, &e);
        let mut open = file.open_partial(path).map_err(failed)?;
        let names: Vec<String> = self.stored().map(|(name, _)| name.to_owned()).collect();
        for name in names {
            let placed = self.placed(&name)?;
            let blocks = self.read_blocks(&name)?;
            let here = self.ranks.here(self.mesh.size());
            for ((rank, data), block) in here.zip(&blocks).zip(self.places(&placed)) {
                if self.owns(rank, &placed) {
                    file.write_block(&mut open, &name, &block, data).map_err(failed)?;
                }
            }
        }
        open.sync_all().map_err(failed)
    }

    fn owns(&self, rank: usize, placed: &Placed) -> bool {
        let coords = self.mesh.coords(rank);
        (0..self.mesh.rank())
            .all(|axis| coords[axis] == 0 || placed.layout.on(axis).sharded_dim().is_some())
    }

    /// Goes on from a checkpoint file, of any mesh and layout, each rank reading its blocks; returns what the file says
    /// about itself. As [`Checkpoint::restore`](crate::Checkpoint::restore).
    ///
    /// # Errors
    /// Whatever the file system reports, on any rank; a file that is no checkpoint; a name that only one side has, or a
    /// tensor of another type: then nothing is changed.
    pub fn load(&mut self, path: &Path) -> Result<About, Error> {
        let read = self.read_all(path);
        let here = read.as_ref().map(|_| ()).map_err(Error::clone);
        self.ranks.together(here)?;
        let (about, blocks) = read?;
        for (name, blocks) in blocks {
            self.write_blocks(&name, blocks)?;
        }
        Ok(about)
    }

    /// The blocks of the ranks that are here, by name.
    fn read_all(&self, path: &Path) -> Result<(About, BTreeMap<String, Vec<Data>>), Error> {
        let (file, mut open) = BlockFile::open(path)?;
        let renewed = fits(&file.about, &file.types(), self)?;
        let read = |name: &str, block: &Block, open: &mut File| {
            file.read_block(open, name, block).map_err(|e| io_error(path, &e))
        };
        let mut all = BTreeMap::new();
        for (name, ty) in self.stored() {
            let new = renewed.iter().any(|(renewed, _)| renewed == name);
            let blocks = self.places(&self.placed(name)?).into_iter().map(|block| {
                if new {
                    return Ok(Data::zeros(ty.dtype, block.len()));
                }
                read(name, &block, &mut open)
            });
            all.insert(name.to_owned(), blocks.collect::<Result<Vec<_>, Error>>()?);
        }
        Ok((file.about, all))
    }

    /// Takes over the values of another trainer's parameters and state of the same names: those of the same plan's world,
    /// in any layout.
    ///
    /// # Errors
    /// A name that the other trainer lacks, a value of another type, or an earlier failure.
    pub fn copy_stored(&mut self, other: &mut Trainer) -> Result<(), Error> {
        let names: Vec<String> = self.stored().map(|(name, _)| name.to_owned()).collect();
        for name in names {
            let (here, there) = (self.placed(&name)?, other.placed(&name)?);
            let fits = here.ty == there.ty && self.mesh == other.mesh;
            let layouts = (&there.layout, &here.layout);
            let moved = match (fits, here.layout == there.layout) {
                (true, true) => Some(other.read_blocks(&name)?),
                (true, false) => {
                    let blocks = other.read_blocks(&name)?;
                    other.ranks.redistribute(&self.mesh, &here.ty, layouts, blocks)?
                }
                (false, _) => None,
            };
            match moved {
                Some(blocks) => self.write_blocks(&name, blocks)?,
                None => {
                    let value = other.gather(&name)?;
                    self.set(&name, &value)?;
                }
            }
        }
        Ok(())
    }
}
