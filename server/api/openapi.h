/* openapi.h: docs/openapi.json as bytes, which the build makes by scripts/openapi.c. */
#ifndef INFERD_SERVER_API_OPENAPI_H
#define INFERD_SERVER_API_OPENAPI_H

extern const unsigned char openapi_bytes[];
extern const unsigned long openapi_length;

#endif
