-- Auto-resume policies.
SELECT policy FROM forebay.resume_policies ORDER BY name
