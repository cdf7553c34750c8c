"""Dead letters: looking at them, removing them, and pushing them again."""

from __future__ import annotations

from forebay.broker.delivery import addressed
from forebay.broker.messages import ANSWER_BYTES_MAX, count_within
from forebay.broker.overview import DeadLetterFilter, DeadMessage
from forebay.clock import SECOND_US
from forebay.model.ids import replay_id
from forebay.model.push_run import run_of_one
from forebay.testing.memory_store.pushing import Pushing


class DeadLetters(Pushing):
    async def dead_letters(
        self, wanted: DeadLetterFilter, limit: int, offset: int, *, bytes_max: int = ANSWER_BYTES_MAX
    ) -> tuple[list[DeadMessage], int]:
        found = sorted(self._wanted(wanted), key=lambda letter: -letter.letter_id)
        page = found[offset : offset + limit]
        return page[: count_within((len(letter.message.payload) for letter in page), bytes_max)], len(found)

    async def replay_dead_letters(self, wanted: DeadLetterFilter, *, to_all_groups: bool = False) -> int:
        found = self._wanted(wanted)
        runs = []
        for letter in found:
            m, headers = letter.message, addressed(letter.message.headers, None if to_all_groups else letter.group)
            runs.append(
                run_of_one(
                    m.queue, m.partition, m.payload, replay_id(m.transaction_id), True, m.trace_id, headers, m.is_binary
                )
            )
        await self.push(runs)
        return await self.purge_dead_letters(wanted) if found else 0

    async def purge_dead_letters(self, wanted: DeadLetterFilter) -> int:
        found = self._wanted(wanted)
        for letter in found:
            del self._letters[letter.letter_id]
        return len(found)

    async def expire_dead_letters(self, seconds: float) -> int:
        oldest_us = self._clock.now_us() - round(seconds * SECOND_US)
        return await self.purge_dead_letters(DeadLetterFilter(to_us=oldest_us - 1))

    def _wanted(self, wanted: DeadLetterFilter) -> list[DeadMessage]:
        return [
            letter
            for letter in self._letters.values()
            if wanted.queue in (None, letter.message.queue)
            and wanted.group in (None, letter.group)
            and wanted.partition in (None, letter.message.partition)
            and wanted.transaction_id in (None, letter.message.transaction_id)
            and (wanted.from_us is None or letter.failed_us >= wanted.from_us)
            and (wanted.to_us is None or letter.failed_us <= wanted.to_us)
        ]
