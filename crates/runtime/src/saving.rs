//! A trainer's parameters and state between its ranks, files and other trainers, block by block.
//!
//! Of every element one rank is the owner: among those that hold it, the one whose coordinate is 0 on all axes that do not
//! shard the tensor. Owners write; everybody reads what it holds. On several hosts the file's directory must be one that all
//! of them see. All ranks go from phase to phase together, and stop together if one of them cannot go on.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use shardgrad_core::Block;

use crate::block_file::BlockFile;
use crate::checkpoint::{About, fits, io_error, not_one};
use crate::error::Error;
use crate::partial::{Partial, path_of, place_of};
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
        let failed = |e: io::Error| io_error(path, &e);
        let (partial, here) = self.partial(path, |begun| file.begin(begun))?;
        let written = self.write_to(&file, &here);
        self.ranks.together(written)?;
        let finished = partial.map_or(Ok(()), Partial::finish);
        self.ranks.together(finished.map_err(failed))
    }

    /// Whether [`Trainer::save`] can write this file: all ranks see its directory, and may write there. Nothing is changed,
    /// but what killed runs left of the file is removed.
    ///
    /// # Errors
    /// There is no such directory, or no file can be made in it; what is there is no regular file; a rank does not see what
    /// the first one makes.
    pub fn can_save(&mut self, path: &Path) -> Result<(), Error> {
        // The file of the first rank stays until all have seen it.
        let (_partial, here) = self.partial(path, |_| Ok(()))?;
        let opened = OpenOptions::new().write(true).open(here);
        self.ranks.together(opened.map(|_| ()).map_err(|e| io_error(path, &e)))
    }

    /// The first rank makes a file beside its place; all know where. It goes away unless it is finished.
    fn partial(
        &mut self,
        path: &Path,
        begin: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(Option<Partial>, PathBuf), Error> {
        let first = self.ranks.here(self.mesh.size()).start == 0;
        let made = place_of(path).and_then(|place| {
            let mut partial = first.then(|| Partial::beside(&place)).transpose()?;
            partial.as_mut().map_or(Ok(()), |partial| begin(&mut partial.file))?;
            Ok((partial, place))
        });
        let made = made.map_err(|e| io_error(path, &e));
        self.ranks.together(made.as_ref().map(|_| ()).map_err(Error::clone))?;
        let (partial, place) = made?;
        let mark = self.ranks.of_first(partial.as_ref().map_or(0, |partial| partial.mark))?;
        Ok((partial, path_of(&place, mark)))
    }

    /// Writes what the ranks that are here own.
    fn write_to(&mut self, file: &BlockFile, path: &Path) -> Result<(), Error> {
        let failed = |e: io::Error| io_error(path, &e);
        let mut open = file.open_begun(path).map_err(failed)?;
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
