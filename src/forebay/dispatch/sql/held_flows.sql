-- Flows for which retention spares messages.
SELECT DISTINCT flow FROM forebay.parcel_holds ORDER BY flow
