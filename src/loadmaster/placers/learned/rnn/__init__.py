"""The RNN-based placer (ColocRL): an LSTM over groups of ops."""

from loadmaster.placers.learned.rnn.rnn import Rnn

__all__ = ["Rnn"]
