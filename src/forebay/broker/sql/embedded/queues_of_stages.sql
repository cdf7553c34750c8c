-- The queues of stages, each given by its id.
SELECT DISTINCT s.queue FROM json_each(:ids) AS k JOIN stages AS s ON s.stage_id = k.value
