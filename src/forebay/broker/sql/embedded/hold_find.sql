-- Until when a reader holds messages back.
SELECT until_us FROM holds WHERE queue_id = ? AND reader = ?
