"""Single sign-on by SAML 2.0: the request, the strict reading of the answer, and the signature that it rests on."""
