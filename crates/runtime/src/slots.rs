//! The buffers behind a plan's slots.
//!
//! Slots that are alive at the same time never share a buffer; where slots of one type and length live one after the
//! other, they do. Slots of leaves and of outputs have buffers of their own, so that updates can change places.

use shardgrad_core::DType;
use shardgrad_graph::SlotId;

use crate::number::{Number, with_number};
use crate::tensor::Data;

/// A slot: its type and length on this rank, and its buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) dtype: DType,
    pub(crate) len: usize,
    pub(crate) live: bool,
    buffer: usize,
}

impl Slot {
    /// A slot without a buffer yet.
    pub(crate) fn new(dtype: DType, len: usize) -> Self {
        Self { dtype, len, live: false, buffer: usize::MAX }
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.len * self.dtype.size()) as u64
    }
}

#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    buffers: Vec<Data>,
}

/// What a slot's buffer has to bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A buffer of its own.
    Own,
    /// A buffer from the step at which the slot is born to the one after which it dies.
    Between(usize, usize),
    /// No buffer: its values never leave a fused group.
    None,
}

impl Slots {
    /// Gives every slot its buffer, still empty. With `share`, slots whose lives do not meet share one.
    pub(crate) fn new(mut slots: Vec<Slot>, needs: &[Need], share: bool) -> Self {
        let mut buffers: Vec<Data> = Vec::new();
        // Buffers that may be shared: type, length, and the step after which they are free.
        let mut shared: Vec<(usize, DType, usize, usize)> = Vec::new();
        let mut order: Vec<usize> = (0..slots.len()).collect();
        order.sort_by_key(|&slot| match needs[slot] {
            Need::Own | Need::None => (0, slot),
            Need::Between(birth, _) => (birth + 1, slot),
        });
        for at in order {
            let slot = &mut slots[at];
            let mut fresh = |dtype: DType| {
                buffers.push(Data::empty(dtype));
                buffers.len() - 1
            };
            slot.buffer = match needs[at] {
                Need::Own | Need::None => fresh(slot.dtype),
                Need::Between(birth, death) => {
                    let free = shared.iter_mut().find(|(_, dtype, len, until)| {
                        share && *dtype == slot.dtype && *len == slot.len && *until < birth
                    });
                    match free {
                        Some((buffer, _, _, until)) => {
                            *until = death;
                            *buffer
                        }
                        None => {
                            let buffer = fresh(slot.dtype);
                            shared.push((buffer, slot.dtype, slot.len, death));
                            buffer
                        }
                    }
                }
            };
        }
        Self { slots, buffers }
    }

    pub(crate) fn slot(&self, slot: SlotId) -> &Slot {
        &self.slots[slot as usize]
    }

    pub(crate) fn set_live(&mut self, slot: SlotId, live: bool) {
        self.slots[slot as usize].live = live;
    }

    pub(crate) fn data(&self, slot: SlotId) -> &Data {
        &self.buffers[self.slots[slot as usize].buffer]
    }

    pub(crate) fn data_mut(&mut self, slot: SlotId) -> &mut Data {
        &mut self.buffers[self.slots[slot as usize].buffer]
    }

    /// Takes the slot's buffer out; [`Slots::put`] brings it back.
    pub(crate) fn take(&mut self, slot: SlotId) -> Data {
        let data = self.data_mut(slot);
        let empty = Data::empty(data.dtype());
        std::mem::replace(data, empty)
    }

    pub(crate) fn put(&mut self, slot: SlotId, data: Data) {
        *self.data_mut(slot) = data;
    }

    /// Makes the slot's buffer as long as it has to be.
    pub(crate) fn fill(&mut self, slot: SlotId) {
        let Slot { dtype, len, .. } = *self.slot(slot);
        if self.data(slot).len() != len {
            self.put(slot, Data::zeros(dtype, len));
        }
    }

    /// Frees the slot's buffer.
    pub(crate) fn drop_buffer(&mut self, slot: SlotId) {
        drop(self.take(slot));
    }

    /// Copies one slot's elements to another of the same type and length.
    pub(crate) fn copy(&mut self, from: SlotId, to: SlotId) {
        let mut target = self.take(to);
        with_number!(target.dtype(), T => {
            if let (Some(target), Some(source)) = (T::slice_mut(&mut target), T::slice(self.data(from))) {
                target.copy_from_slice(source);
            }
        });
        self.put(to, target);
    }

    /// Two slots with buffers of their own exchange them.
    pub(crate) fn exchange(&mut self, a: SlotId, b: SlotId) {
        let (a, b) = (a as usize, b as usize);
        let buffer = self.slots[a].buffer;
        self.slots[a].buffer = self.slots[b].buffer;
        self.slots[b].buffer = buffer;
    }

    /// Bytes of the slots that are alive.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.slots.iter().filter(|s| s.live).map(Slot::bytes).sum()
    }
}
