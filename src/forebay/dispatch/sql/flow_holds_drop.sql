-- A forgotten flow needs no messages.
DELETE FROM forebay.parcel_holds WHERE flow = :flow
